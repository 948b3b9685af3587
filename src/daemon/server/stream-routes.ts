/**
 * Routes that answer in many parts: a run's events as server-sent events, reservations as JSON lines.
 *
 * Owns: their form, heartbeat, and ending them when the caller has gone or the server closes.
 */
import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import type { FastifyInstance, FastifyReply } from 'fastify'
import { z } from 'zod'
import { serialiseError } from '../../errors/kosa8-error.js'
import { runIdSchema, runEventsQuerySchema } from '../../protocol/runs.js'
import { reservationRequestSchema, type ReservationLine } from '../../protocol/reservations.js'
import { EVENT_HEARTBEAT, STREAM_PATHS, formatEvent } from '../../protocol/streams.js'
import type { Services } from '../services.js'
import { signalOfCaller } from './method-routes.js'
import { validate } from './validation.js'

/** Time between two signs of life on a silent event stream, milliseconds. */
const HEARTBEAT_MS = 15_000

/**
 * Registers events and reservations.
 * @param options closing: aborted when the server closes; isRemote: no reservations, workers are on this host
 */
export function registerStreamRoutes(app: FastifyInstance, services: Services, { closing, isRemote }: { closing: AbortSignal; isRemote: boolean }): void {
  const runParams = z.strictObject({ id: runIdSchema })
  const reservationParams = z.strictObject({ id: z.string().min(1).max(100) })

  app.get(STREAM_PATHS.runEvents, async (request, reply) => {
    const { id } = validate(runParams, request.params, 'path')
    const { from } = validate(runEventsQuerySchema, request.query, 'query')
    await services.runs.get(id)
    const signal = AbortSignal.any([signalOfCaller(request, reply), closing])
    const response = takeOver(reply, 'text/event-stream')
    const heartbeat = setInterval(() => {
      if (!response.writableNeedDrain) response.write(EVENT_HEARTBEAT)
    }, HEARTBEAT_MS)
    try {
      for await (const event of services.runs.events(id, from ?? 0, signal)) {
        await writeInFull(response, formatEvent(event.seq, JSON.stringify(event)), signal)
      }
    } catch (error) {
      if (!signal.aborted) request.log.error(error)
    } finally {
      clearInterval(heartbeat)
      response.end()
    }
  })

  if (isRemote) return
  const serveLines = async (reply: FastifyReply, lines: AsyncIterable<ReservationLine>, signal: AbortSignal): Promise<void> => {
    const response = takeOver(reply, 'application/x-ndjson')
    const writeLine = (line: ReservationLine): Promise<void> => writeInFull(response, `${JSON.stringify(line)}\n`, signal)
    try {
      for await (const line of lines) await writeLine(line)
    } catch (error) {
      if (!signal.aborted) await writeLine({ type: 'error', error: { ...serialiseError(error) } })
    } finally {
      response.end()
    }
  }

  app.post(STREAM_PATHS.reserve, async (request, reply) => {
    const wanted = validate(reservationRequestSchema, request.body, 'request')
    const signal = AbortSignal.any([signalOfCaller(request, reply), closing])
    await serveLines(reply, services.reservations.reserve(wanted, signal), signal)
  })

  app.post(STREAM_PATHS.adopt, async (request, reply) => {
    const { id } = validate(reservationParams, request.params, 'path')
    const wanted = validate(reservationRequestSchema, request.body, 'request')
    const signal = AbortSignal.any([signalOfCaller(request, reply), closing])
    await serveLines(reply, services.reservations.adopt(id, wanted, signal), signal)
  })
}

function takeOver(reply: FastifyReply, contentType: string): ServerResponse {
  reply.hijack()
  reply.raw.on('error', () => undefined)
  reply.raw.writeHead(200, { 'content-type': contentType, 'cache-control': 'no-store' })
  reply.raw.flushHeaders()
  return reply.raw
}

/** Writes and waits while the reader is behind. */
async function writeInFull(response: ServerResponse, text: string, signal: AbortSignal): Promise<void> {
  if (response.destroyed || response.write(text)) return
  await once(response, 'drain', { signal }).catch(() => undefined)
}
