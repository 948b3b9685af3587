/**
 * Memory for trials and sandboxes of this host: the ledger with its callers around it.
 *
 * Owns: predicting what a trial will need, the held-open conversations with workers, following real
 * use, and what happens when a conversation ends. The rule of the ledger itself is `admission`'s.
 */
import type { Ledger, WaitOptions } from '../admission/ledger.js'
import { predictPeakBytes, PREDICTION_FLOOR_BYTES } from '../admission/predictor.js'
import type { PreemptionCandidate } from '../admission/pressure.js'
import { Kosa8Error, serialiseError } from '../errors/kosa8-error.js'
import type { ReservationId, RunId, TrialId } from '../model/ids.js'
import type { Reservation } from '../model/reservation.js'
import type { ReservationLine, ReservationRequest, ReservationUsage } from '../protocol/reservations.js'
import type { Clock } from '../util/clock.js'
import { LineChannel } from '../util/line-channel.js'
import type { ProcessIdentity } from '../util/process-identity.js'
import type { ReservationService } from './services.js'

/** A reservation follows real use down only after this long: before, the peak is still to come. */
const SHRINK_AFTER_MS = 20_000
const GROWTH_MARGIN = 1.15
const SHRINK_MARGIN = 1.5
/** After a restart a worker gets this long to take its reservations over, milliseconds. */
export const ADOPTION_GRACE_MS = 15_000

/** What the book works with. */
export interface BookParts {
  ledger: Ledger
  clock: Clock
  /** Peaks of private memory, bytes: earlier trials of this approach, and ended trials of this run. */
  peaksOf(run: RunId, label: string): Promise<{ history: number[]; runPeaks: number[] }>
  /** Who works on trials now. */
  workerIdentity(): Promise<ProcessIdentity>
  /** Ends what is left of a trial's machine; called before its memory is given to anybody else. */
  endTrialMachine(trial: TrialId): Promise<void>
}

interface Held {
  request: ReservationRequest
  reservation: Reservation
  lines: LineChannel<ReservationLine>
  startedAtMs: number
  peakBytes: number
}

/** Implements the reservations of the daemon's HTTP interface. */
export class ReservationBook implements ReservationService {
  private readonly held = new Map<string, Held>()
  private readonly waiting = new Map<AbortController, RunId>()
  private isStopping = false

  constructor(private readonly parts: BookParts) {}

  async *reserve(request: ReservationRequest, signal: AbortSignal): AsyncIterable<ReservationLine> {
    const lines = new LineChannel<ReservationLine>()
    const cancel = new AbortController()
    this.waiting.set(cancel, request.run as RunId)
    const wanted = AbortSignal.any([signal, cancel.signal])
    const granted = this.grant(request, lines, wanted).then((reservation) => {
      this.waiting.delete(cancel)
      if (signal.aborted) return this.parts.ledger.release(reservation.id)
      this.hold(request, reservation, lines)
      return undefined
    }).catch((error: unknown) => {
      this.waiting.delete(cancel)
      lines.end(cancel.signal.aborted
        ? { type: 'cancel', message: 'the run was cancelled' }
        : { type: 'error', error: { ...serialiseError(error) } })
    })
    try {
      yield* lines.read(signal)
    } finally {
      await granted
      await this.letGo(lines)
    }
  }

  async *adopt(id: string, request: ReservationRequest, signal: AbortSignal): AsyncIterable<ReservationLine> {
    const reservation = this.parts.ledger.status().reservations.find((one) => one.id === id)
    if (reservation === undefined) {
      throw new Kosa8Error('PREEMPTED', `the reservation ${id} is not known here any more`)
    }
    const lines = new LineChannel<ReservationLine>()
    this.hold(request, reservation, lines)
    try {
      yield* lines.read(signal)
    } finally {
      await this.letGo(lines)
    }
  }

  async reportUsage(id: string, usage: ReservationUsage): Promise<{ bytes: number }> {
    const held = this.held.get(id)
    if (held === undefined) return { bytes: 0 }
    held.peakBytes = Math.max(held.peakBytes, usage.peakPrivateBytes)
    const bytes = this.sizeFor(held)
    if (bytes !== held.reservation.bytes) {
      const answer = await this.parts.ledger.resize(held.reservation.id, bytes)
      if (answer.admitted) held.reservation = answer.reservation
    }
    return { bytes: held.reservation.bytes }
  }

  /**
   * Memory for a sandbox. With `onWait` it waits for it and says what for; without, it is there now or not at
   * all, for a person waits for the answer.
   * @throws MEMORY_INSUFFICIENT
   */
  async reserveSandbox(name: string, memoryMib: number, wait: WaitOptions = {}): Promise<Reservation> {
    const bytes = predictPeakBytes({ history: [], runPeaks: [], memoryMib })
    const request = { bytes, holder: `sandbox ${name}`, kind: 'sandbox', owner: await this.parts.workerIdentity() } as const
    if (wait.onWait !== undefined) return this.parts.ledger.reserve(request, wait)
    const answer = await this.parts.ledger.tryReserve(request)
    if (answer.admitted) return answer.reservation
    const isForever = answer.reason === 'tooLarge'
    throw new Kosa8Error('MEMORY_INSUFFICIENT', `no memory for sandbox ${name}${isForever ? '' : ' now'}: ${answer.message}`, {
      hint: isForever ? 'give it less memory (--mem); `kosa8 daemon status` shows what there is'
        : 'end another sandbox (kosa8 ls), wait for a run to end, or give it less memory (--mem)',
    })
  }

  async release(id: ReservationId): Promise<void> {
    await this.parts.ledger.release(id)
  }

  /** Tells every trial of a run, running or waiting, to end. */
  cancelRun(run: RunId): void {
    for (const [cancel, waitingRun] of this.waiting) if (waitingRun === run) cancel.abort()
    for (const held of this.held.values()) {
      if (held.request.run === run) held.lines.push({ type: 'cancel', message: 'the run was cancelled' })
    }
  }

  /** Resolves once no trial of the run holds memory; at the latest when the signal fires. */
  async waitUntilReleased(run: RunId, signal: AbortSignal): Promise<void> {
    while (!signal.aborted && [...this.held.values()].some((held) => held.request.run === run)) {
      await new Promise<void>((resolve) => {
        this.releaseListeners.add(resolve)
        signal.addEventListener('abort', () => resolve(), { once: true })
      })
    }
  }

  private readonly releaseListeners = new Set<() => void>()

  /** Running trials, for the pressure policy. */
  candidates(): PreemptionCandidate[] {
    return [...this.held.values()].map((held) => ({
      trial: held.request.trial as TrialId, startedAt: held.startedAtMs, cpuMs: 0, isCollecting: false,
    }))
  }

  /** Takes a trial's memory back: it goes to the queue again. */
  preempt(trial: TrialId, reason: string): void {
    for (const held of this.held.values()) {
      if (held.request.trial === trial) held.lines.push({ type: 'preempt', message: reason })
    }
  }

  /** Bytes our machines hold now, as far as their workers have said. */
  ownPrivateBytes(): number {
    return [...this.held.values()].reduce((sum, held) => sum + held.peakBytes, 0)
  }

  /** True while somebody holds or waits for memory of this run. */
  get isIdle(): boolean {
    return this.held.size === 0 && this.waiting.size === 0
  }

  /** Gives back what nobody took over after a restart. */
  async dropUnadopted(orphans: Reservation[]): Promise<void> {
    for (const reservation of orphans) {
      if (this.held.has(reservation.id)) continue
      await this.parts.endTrialMachine(trialOf(reservation))
      await this.parts.ledger.release(reservation.id)
    }
  }

  /** Ends the conversations without giving anything back: the next daemon goes on with them. */
  stop(): void {
    this.isStopping = true
    for (const held of this.held.values()) held.lines.end()
    for (const cancel of this.waiting.keys()) cancel.abort()
  }

  private async grant(request: ReservationRequest, lines: LineChannel<ReservationLine>, signal: AbortSignal): Promise<Reservation> {
    const peaks = await this.parts.peaksOf(request.run as RunId, request.label)
    const bytes = request.bytes ?? predictPeakBytes({ ...peaks, memoryMib: request.memoryMib })
    const owner = await this.parts.workerIdentity()
    return this.parts.ledger.reserve({ bytes, holder: `trial ${request.trial}`, kind: 'trial', owner }, {
      signal, onWait: (message) => lines.push({ type: 'waiting', message }),
    })
  }

  private hold(request: ReservationRequest, reservation: Reservation, lines: LineChannel<ReservationLine>): void {
    this.held.set(reservation.id, { request, reservation, lines, startedAtMs: this.parts.clock.monotonic(), peakBytes: 0 })
    lines.push({ type: 'granted', id: reservation.id, bytes: reservation.bytes })
  }

  /** The conversation has ended: by the worker, or because the worker has died and left its machine behind. */
  private async letGo(lines: LineChannel<ReservationLine>): Promise<void> {
    for (const [id, held] of this.held) {
      if (held.lines !== lines) continue
      this.held.delete(id)
      if (!this.isStopping) {
        await this.parts.endTrialMachine(held.request.trial as TrialId)
        await this.parts.ledger.release(held.reservation.id)
      }
    }
    for (const listener of this.releaseListeners) listener()
    this.releaseListeners.clear()
  }

  private sizeFor(held: Held): number {
    const reserved = held.reservation.bytes
    if (held.peakBytes > reserved) return Math.ceil(held.peakBytes * GROWTH_MARGIN)
    const ageMs = this.parts.clock.monotonic() - held.startedAtMs
    if (ageMs < SHRINK_AFTER_MS) return reserved
    return Math.min(reserved, Math.max(PREDICTION_FLOOR_BYTES, Math.ceil(held.peakBytes * SHRINK_MARGIN)))
  }
}

/** The trial a reservation was made for; its holder is "trial <id>". */
function trialOf(reservation: Reservation): TrialId {
  return reservation.holder.replace(/^trial /, '') as TrialId
}
