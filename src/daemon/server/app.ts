/**
 * The daemon's HTTP application, not listening yet.
 *
 * Owns: limits, validation, the form of errors, telling services that a caller has gone, closing in order. The same for
 * the unix socket, where the kernel says who may connect, and for TCP, where a gate does.
 */
import type { Socket } from 'node:net'
import fastify, { type FastifyInstance } from 'fastify'
import { Kosa8Error, serialiseError } from '../../errors/kosa8-error.js'
import { RUN_REQUEST_BYTES_MAX } from '../../protocol/runs.js'
import type { Services } from '../services.js'
import { sendError } from './errors.js'
import { handleExecUpgrade } from './exec-route.js'
import { registerFileRoutes } from './file-routes.js'
import { registerMethodRoutes } from './method-routes.js'
import { registerStreamRoutes } from './stream-routes.js'
import type { Refusal, TcpGate } from './tcp-gate.js'

/** A server that listens. */
export interface DaemonServer {
  /** Takes no new calls, ends streams and exec connections, waits for calls that are being answered. */
  close(): Promise<void>
}

/** What is different over TCP. */
export interface TcpAccess {
  gate: TcpGate
  /** Certificate and key, PEM; null: in clear text, on a loopback address. */
  tls: { cert: Buffer; key: Buffer } | null
}

/** How long calls being answered may take once the server closes, milliseconds. */
const CLOSE_DEADLINE_MS = 5_000
/** Connections over TCP at once: they are accepted before their token is seen. */
const TCP_CONNECTIONS_MAX = 256

/** Makes the application. @param tcp null: for the unix socket */
export async function buildApp(services: Services, tcp: TcpAccess | null): Promise<{ app: FastifyInstance; server: DaemonServer }> {
  const closing = new AbortController()
  const app = fastify({
    bodyLimit: RUN_REQUEST_BYTES_MAX,
    forceCloseConnections: 'idle',
    // A sandbox may take minutes to be made; a caller that has gone is noticed by its connection.
    requestTimeout: 0,
    https: tcp?.tls ?? null,
  })
  if (tcp !== null) {
    app.server.maxConnections = TCP_CONNECTIONS_MAX
    app.addHook('onRequest', async (request, reply) => {
      const refusal = tcp.gate.check(request.raw)
      if (refusal !== null) return reply.headers(headersOf(refusal)).code(refusal.status).send(bodyOf(refusal))
    })
  }
  app.setErrorHandler((error, _request, reply) => sendError(reply, error))
  app.setNotFoundHandler((request, reply) =>
    sendError(reply, new Kosa8Error('USAGE', `the daemon has no ${request.method} ${request.url.split('?')[0]}`)))
  registerMethodRoutes(app, services, { isRemote: tcp !== null })
  registerStreamRoutes(app, services, { closing: closing.signal, isRemote: tcp !== null })
  registerFileRoutes(app, services)
  const connections = trackConnections(app)
  app.server.on('upgrade', (request, socket, head) => {
    const refusal = tcp?.gate.check(request) ?? null
    if (refusal === null) handleExecUpgrade(services.sandboxes, request, socket, head)
    else socket.end(rawAnswer(refusal))
  })
  await app.ready()
  return { app, server: { close: () => closeApp(app, closing, connections) } }
}

function trackConnections(app: FastifyInstance): Set<Socket> {
  const connections = new Set<Socket>()
  app.server.on('connection', (socket: Socket) => {
    connections.add(socket)
    socket.once('close', () => connections.delete(socket))
  })
  return connections
}

async function closeApp(app: FastifyInstance, closing: AbortController, connections: Set<Socket>): Promise<void> {
  closing.abort()
  const deadline = setTimeout(() => connections.forEach((socket) => socket.destroy()), CLOSE_DEADLINE_MS)
  try {
    await app.close()
  } finally {
    clearTimeout(deadline)
    connections.forEach((socket) => socket.destroy())
  }
}

function headersOf({ status }: Refusal): Record<string, string> {
  return { connection: 'close', ...(status === 401 ? { 'www-authenticate': 'Bearer' } : {}) }
}

function bodyOf({ error }: Refusal): { error: unknown } {
  return { error: serialiseError(error) }
}

/** An upgrade is refused on the bare connection. */
function rawAnswer(refusal: Refusal): string {
  const body = JSON.stringify(bodyOf(refusal))
  const headers = { ...headersOf(refusal), 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(body)) }
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`).join('')
  return `HTTP/1.1 ${refusal.status} Refused\r\n${lines}\r\n${body}`
}
