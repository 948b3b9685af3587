/**
 * A worker's side of memory reservations: one held-open request per reservation.
 *
 * Owns: the lines of that conversation, and taking a granted reservation over to the next daemon when
 * the one that granted it dies. The ledger itself is the daemon's.
 */
import http from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import { Kosa8Error, parseError } from '../errors/kosa8-error.js'
import type { HeldReservation, Reservations, ReservationWish } from './reservations.js'
import { reservationLineSchema, type ReservationLine, type ReservationRequest } from '../protocol/reservations.js'

/** Time between attempts to reach a daemon that is not there, milliseconds. */
const RECONNECT_MS = 500

/** Reservations from the daemon behind a unix socket. */
export class ReservationClient implements Reservations {
  /** Wall clock of the last line the daemon sent, or of the last answer; for idle workers. */
  lastContactMs = performance.now()

  constructor(private readonly socketPath: string) {}

  async acquire(
    wish: ReservationWish, options: { signal: AbortSignal; onWaiting: (message: string) => void },
  ): Promise<HeldReservation> {
    const request: ReservationRequest = { ...wish, attempt: 1, bytes: null }
    for (;;) {
      options.signal.throwIfAborted()
      try {
        return await this.askOnce(request, options)
      } catch (error) {
        if (Kosa8Error.isInstance(error) && error.code !== 'DAEMON_UNREACHABLE') throw error
        options.signal.throwIfAborted()
        options.onWaiting('waits for the daemon')
        await delay(RECONNECT_MS, undefined, { signal: options.signal }).catch(() => undefined)
      }
    }
  }

  private async askOnce(
    request: ReservationRequest, options: { signal: AbortSignal; onWaiting: (message: string) => void },
  ): Promise<HeldReservation> {
    const conversation = new Conversation(this.socketPath, '/v1/reservations', request, () => { this.lastContactMs = performance.now() })
    const onAbort = (): void => conversation.close()
    options.signal.addEventListener('abort', onAbort, { once: true })
    try {
      for (let line = await conversation.next(); line !== null; line = await conversation.next()) {
        if (line.type === 'granted') return new Held(this, request, line, conversation)
        if (line.type === 'waiting') options.onWaiting(line.message)
        else throw endOf(line)
      }
      options.signal.throwIfAborted()
      throw new Kosa8Error('DAEMON_UNREACHABLE', 'the daemon closed a reservation before it was granted')
    } catch (error) {
      conversation.close()
      throw error
    } finally {
      options.signal.removeEventListener('abort', onAbort)
    }
  }

  /** Opens the conversation of a granted reservation again, with whatever daemon there is now. */
  readopt(id: string, request: ReservationRequest): Conversation {
    return new Conversation(this.socketPath, `/v1/reservations/${id}/adopt`, request, () => { this.lastContactMs = performance.now() })
  }

  /** Sends a measurement; a daemon that is not there misses it. */
  reportUsage(id: string, privateBytes: number): void {
    const body = JSON.stringify({ privateBytes, peakPrivateBytes: privateBytes })
    const call = http.request({
      socketPath: this.socketPath, path: `/v1/reservations/${id}/usage`, method: 'POST',
      headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) },
    }, (response) => response.resume())
    call.on('error', () => undefined)
    call.end(body)
  }
}

/** One held-open request and the lines it answers with. */
class Conversation {
  private readonly call: http.ClientRequest
  private readonly answer: Promise<http.IncomingMessage>
  private lines: AsyncGenerator<string, void> | null = null

  constructor(socketPath: string, path: string, request: ReservationRequest, private readonly onContact: () => void) {
    const body = JSON.stringify(request)
    this.call = http.request({
      socketPath, path, method: 'POST',
      headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) },
    })
    this.answer = new Promise((resolve, reject) => {
      this.call.once('response', resolve)
      this.call.on('error', (cause) => reject(new Kosa8Error('DAEMON_UNREACHABLE', 'the daemon does not answer', { cause })))
    })
    this.answer.catch(() => undefined)
    this.call.end(body)
  }

  /** The next line; null once the connection has ended. Read by hand: leaving a loop would end the answer. */
  async next(): Promise<ReservationLine | null> {
    const answer = await this.answer
    this.lines ??= splitLines(answer)
    const { value, done } = await this.lines.next()
    if (done === true) return null
    this.onContact()
    if (answer.statusCode !== 200) throw parseError((JSON.parse(value) as { error?: unknown }).error)
    return reservationLineSchema.parse(JSON.parse(value))
  }

  close(): void {
    this.call.destroy()
  }
}

/** Whole lines of an answer. A connection that breaks ends them; what that means depends on what was said before. */
async function* splitLines(answer: http.IncomingMessage): AsyncGenerator<string, void> {
  let text = ''
  try {
    for await (const chunk of answer.setEncoding('utf8')) {
      text += chunk as string
      const lines = text.split('\n')
      text = lines.pop() as string
      yield* lines.filter((line) => line.trim() !== '')
    }
  } catch (error) {
    if (Kosa8Error.isInstance(error)) throw error
  }
}

/** A granted reservation, kept alive across daemons. */
class Held implements HeldReservation {
  readonly bytes: number
  private readonly withdrawal = new AbortController()
  private isReleased = false

  constructor(
    private readonly client: ReservationClient, private readonly request: ReservationRequest,
    private readonly granted: Extract<ReservationLine, { type: 'granted' }>, private conversation: Conversation,
  ) {
    this.bytes = granted.bytes
    void this.listen()
  }

  get withdrawn(): AbortSignal {
    return this.withdrawal.signal
  }

  reportPeak(privateBytes: number): void {
    this.client.reportUsage(this.granted.id, privateBytes)
  }

  release(): void {
    this.isReleased = true
    this.conversation.close()
  }

  private async listen(): Promise<void> {
    while (!this.isReleased) {
      try {
        for (let line = await this.conversation.next(); line !== null; line = await this.conversation.next()) {
          if (line.type === 'granted' || line.type === 'waiting') continue
          this.withdrawal.abort(endOf(line))
          return
        }
      } catch (error) {
        if (Kosa8Error.isInstance(error) && error.code !== 'DAEMON_UNREACHABLE') {
          this.withdrawal.abort(new Kosa8Error('PREEMPTED', `the reservation is gone: ${error.message}`))
          return
        }
      }
      // The daemon has died. The trial goes on; the next daemon is asked to take the reservation over.
      await delay(RECONNECT_MS)
      if (!this.isReleased) this.conversation = this.client.readopt(this.granted.id, this.request)
    }
  }
}

function endOf(line: Exclude<ReservationLine, { type: 'granted' | 'waiting' }>): Kosa8Error {
  if (line.type === 'error') return parseError(line.error)
  return new Kosa8Error(line.type === 'cancel' ? 'CANCELLED' : 'PREEMPTED', line.message)
}
