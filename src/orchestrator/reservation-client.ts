/**
 * A worker's side of memory reservations: one held-open request per reservation.
 *
 * Owns: waiting for a grant, and taking a granted reservation over to the next daemon when the one that
 * granted it dies. The ledger itself is the daemon's, the lines of the conversation are the protocol's.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { Kosa8Error, parseError } from '../errors/kosa8-error.js'
import type { HeldReservation, Reservations, ReservationWish } from './reservations.js'
import { callMethod, openReservation } from '../protocol/client.js'
import type { ReservationLine, ReservationRequest } from '../protocol/reservations.js'

/** Time between attempts to reach a daemon that is not there, milliseconds. */
const RECONNECT_MS = 500

/** One held-open request: its lines, and the way to end it. Read by hand: leaving a loop would end it too. */
interface Conversation {
  lines: AsyncGenerator<ReservationLine, void>
  close: () => void
}

/** Reservations from the daemon behind a unix socket. */
export class ReservationClient implements Reservations {
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
        if (!isUnreachable(error)) throw error
        options.signal.throwIfAborted()
        options.onWaiting('waits for the daemon')
        await delay(RECONNECT_MS, undefined, { signal: options.signal }).catch(() => undefined)
      }
    }
  }

  private async askOnce(
    request: ReservationRequest, options: { signal: AbortSignal; onWaiting: (message: string) => void },
  ): Promise<HeldReservation> {
    const conversation = this.converse(request)
    options.signal.addEventListener('abort', conversation.close, { once: true })
    try {
      for (let line = await nextLine(conversation); line !== null; line = await nextLine(conversation)) {
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
      options.signal.removeEventListener('abort', conversation.close)
    }
  }

  /** Opens a conversation with whatever daemon there is now; with `adopt`, that of a granted reservation again. */
  converse(request: ReservationRequest, adopt?: string): Conversation {
    const closing = new AbortController()
    const options = { signal: closing.signal, ...(adopt === undefined ? {} : { adopt }) }
    return { lines: openReservation(this.socketPath, request, options), close: () => closing.abort() }
  }

  /** Sends a measurement; a daemon that is not there misses it. */
  reportUsage(id: string, privateBytes: number): void {
    callMethod(this.socketPath, 'reportUsage', { params: { id }, body: { privateBytes, peakPrivateBytes: privateBytes } })
      .catch(() => undefined)
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
        for (let line = await nextLine(this.conversation); line !== null; line = await nextLine(this.conversation)) {
          if (line.type === 'granted' || line.type === 'waiting') continue
          this.withdrawal.abort(endOf(line))
          return
        }
      } catch (error) {
        if (!isUnreachable(error)) {
          this.withdrawal.abort(new Kosa8Error('PREEMPTED', `the reservation is gone: ${String(error)}`))
          return
        }
      }
      // The daemon has died. The trial goes on; the next daemon is asked to take the reservation over.
      await delay(RECONNECT_MS)
      if (!this.isReleased) this.conversation = this.client.converse(this.request, this.granted.id)
    }
  }
}

async function nextLine(conversation: Conversation): Promise<ReservationLine | null> {
  const { value, done } = await conversation.lines.next()
  return done === true ? null : value
}

function isUnreachable(error: unknown): boolean {
  return Kosa8Error.isInstance(error) && error.code === 'DAEMON_UNREACHABLE'
}

function endOf(line: Exclude<ReservationLine, { type: 'granted' | 'waiting' }>): Kosa8Error {
  if (line.type === 'error') return parseError(line.error)
  return new Kosa8Error(line.type === 'cancel' ? 'CANCELLED' : 'PREEMPTED', line.message)
}
