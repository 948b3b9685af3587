/**
 * The ledger of reservations: the one place where memory of this host is promised.
 *
 * Owns: the rule that promises never exceed the budget, and the order of those who wait. Everything is
 * decided in one synchronous step, so two requests never spend the same bytes. Does not own: how much
 * there is (budget.ts), how much is asked for (predictor.ts), whether the host suffers (pressure.ts).
 */
import { randomUUID } from 'node:crypto'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { ReservationId } from '../model/ids.js'
import type { Reservation } from '../model/reservation.js'
import { systemClock, type Clock } from '../util/clock.js'
import { createDeferred, type Deferred } from '../util/deferred.js'

/** What is asked for. */
export type ReservationRequest = Pick<Reservation, 'bytes' | 'holder' | 'kind' | 'owner'>

/** Where reservations survive the process; both calls resolve once it is durable. */
export interface ReservationMemory {
  save(reservation: Reservation): Promise<void>
  remove(id: ReservationId): Promise<void>
}

/** What a ledger is built from. */
export interface LedgerConfig {
  /** Bytes that may be promised in all, now; asked before each decision. */
  budgetBytes(): number
  memory: ReservationMemory
  clock?: Clock
}

/** The answer to a request that does not wait. */
export type Admission =
  | { admitted: true; reservation: Reservation }
  | { admitted: false; reason: 'tooLarge' | 'noRoom' | 'others' | 'pressure'; message: string }

/** How to wait for a reservation. */
export interface WaitOptions {
  /** Ends the waiting; the request then rejects CANCELLED. */
  signal?: AbortSignal
  /** Told what it waits for, at first and whenever that changes: "needs 310 MiB, 120 MiB free". */
  onWait?: (message: string) => void
}

/** The ledger at one instant. */
export interface LedgerStatus {
  budgetBytes: number
  reservedBytes: number
  reservations: Reservation[]
  /** In the order in which they will be served. */
  waiting: { holder: string; bytes: number; message: string }[]
  /** Why nothing is admitted at the moment, or null. */
  veto: string | null
}

interface Waiter {
  request: ReservationRequest
  granted: Deferred<Reservation>
  onWait: (message: string) => void
  message: string
}

/** One per host. */
export class Ledger {
  private readonly reservations = new Map<ReservationId, Reservation>()
  private readonly waiters: Waiter[] = []
  private readonly writes = new Map<ReservationId, Promise<void>>()
  private veto: string | null = null
  private readonly clock: Clock

  /** @param existing what an earlier process of this host had promised; kept even above the budget */
  constructor(private readonly config: LedgerConfig, existing: Reservation[] = []) {
    this.clock = config.clock ?? systemClock
    for (const reservation of existing) this.reservations.set(reservation.id, reservation)
  }

  /**
   * Reserves, in the order of asking: nobody overtakes one who waits. Durable when it resolves.
   * @throws Kosa8Error MEMORY_INSUFFICIENT at once when it can never fit; CANCELLED by the signal.
   */
  async reserve(request: ReservationRequest, options: WaitOptions = {}): Promise<Reservation> {
    if (options.signal?.aborted === true) throw cancelled(request)
    const answer = this.decide(request, this.waiters.length)
    if (answer === null) return this.grant(request)
    if (answer.reason === 'tooLarge') throw tooLarge(answer.message)
    return this.wait(request, options)
  }

  /** Reserves if there is room and nobody waits, and says why if not. Durable when it resolves. */
  async tryReserve(request: ReservationRequest): Promise<Admission> {
    const refusal = this.decide(request, this.waiters.length)
    if (refusal !== null) return { admitted: false, ...refusal }
    return { admitted: true, reservation: await this.grant(request) }
  }

  /**
   * Changes the size of a reservation to what its machine really needs. Less is always granted; more only
   * if there is room, ahead of those who wait, for this machine is running already.
   */
  async resize(id: ReservationId, bytes: number): Promise<Admission> {
    const before = this.reservations.get(id)
    if (before === undefined) throw new Error(`no reservation ${id}`)
    const freeBytes = this.freeBytes()
    if (bytes - before.bytes > Math.max(freeBytes, 0)) {
      return { admitted: false, reason: 'noRoom', message: needsMessage(bytes - before.bytes, freeBytes, 0) }
    }
    const after = { ...before, bytes }
    this.reservations.set(id, after)
    try {
      await this.persist(id, () => this.config.memory.save(after))
    } catch (error) {
      // The bytes given back may be promised to others by now: only growth is taken back.
      if (this.reservations.get(id) === after && bytes > before.bytes) this.reservations.set(id, before)
      throw error
    }
    this.serveWaiters()
    return { admitted: true, reservation: after }
  }

  /** Gives a reservation back; nothing happens when there is none. */
  async release(id: ReservationId): Promise<void> {
    await this.persist(id, () => this.config.memory.remove(id))
    if (this.reservations.delete(id)) this.serveWaiters()
  }

  /** Stops (reason) or allows (null) new reservations; those already made stay. */
  setVeto(reason: string | null): void {
    this.veto = reason
    this.serveWaiters()
  }

  /** Looks again: call it when the budget may have grown. */
  refresh(): void {
    this.serveWaiters()
  }

  status(): LedgerStatus {
    return {
      budgetBytes: this.config.budgetBytes(),
      reservedBytes: this.reservedBytes(),
      reservations: [...this.reservations.values()],
      waiting: this.waiters.map(({ request, message }) => ({ holder: request.holder, bytes: request.bytes, message })),
      veto: this.veto,
    }
  }

  private async wait(request: ReservationRequest, options: WaitOptions): Promise<Reservation> {
    const granted = createDeferred<Reservation>()
    const waiter: Waiter = { request, granted, onWait: options.onWait ?? (() => undefined), message: '' }
    this.waiters.push(waiter)
    const onAbort = (): void => {
      const position = this.waiters.indexOf(waiter)
      if (position === -1) return
      this.waiters.splice(position, 1)
      granted.reject(cancelled(request))
      this.serveWaiters()
    }
    options.signal?.addEventListener('abort', onAbort, { once: true })
    try {
      this.serveWaiters()
      return await granted.promise
    } finally {
      options.signal?.removeEventListener('abort', onAbort)
    }
  }

  /** Serves from the front until one has to wait, then tells the others why they do. */
  private serveWaiters(): void {
    for (let first = this.waiters[0]; first !== undefined; first = this.waiters[0]) {
      const refusal = this.decide(first.request, 0)
      // Too large for a budget that has shrunk: hopeless only when nothing will be given back.
      if (refusal !== null && !(refusal.reason === 'tooLarge' && this.reservations.size === 0)) break
      this.waiters.shift()
      if (refusal === null) first.granted.resolve(this.grant(first.request))
      else first.granted.reject(tooLarge(refusal.message))
    }
    const freeBytes = this.freeBytes()
    this.waiters.forEach((waiter, position) => {
      const message = this.veto === null ? needsMessage(waiter.request.bytes, freeBytes, position) : this.veto
      if (message === waiter.message) return
      waiter.message = message
      waiter.onWait(message)
    })
  }

  /** Null: may be granted now. */
  private decide(request: ReservationRequest, before: number): Omit<Extract<Admission, { admitted: false }>, 'admitted'> | null {
    const budgetBytes = this.config.budgetBytes()
    const freeBytes = this.freeBytes()
    if (request.bytes > budgetBytes) {
      const message = `${request.holder} needs ${mib(request.bytes)}, more than the ${mib(budgetBytes)} this host can give in all`
      return { reason: 'tooLarge', message }
    }
    if (this.veto !== null) return { reason: 'pressure', message: this.veto }
    const message = needsMessage(request.bytes, freeBytes, before)
    if (request.bytes > freeBytes) return { reason: 'noRoom', message }
    return before > 0 ? { reason: 'others', message } : null
  }

  /** Takes the bytes before anything is awaited, and gives them back when they cannot be made durable. */
  private async grant(request: ReservationRequest): Promise<Reservation> {
    const reservation: Reservation = {
      ...request,
      id: `res-${randomUUID()}` as ReservationId,
      createdAt: new Date(this.clock.now()).toISOString(),
    }
    this.reservations.set(reservation.id, reservation)
    try {
      await this.persist(reservation.id, () => this.config.memory.save(reservation))
    } catch (error) {
      this.reservations.delete(reservation.id)
      this.serveWaiters()
      throw error
    }
    return reservation
  }

  /** Writes of one reservation one after the other: a late save must not bring back what was released. */
  private async persist(id: ReservationId, write: () => Promise<void>): Promise<void> {
    const written = (this.writes.get(id) ?? Promise.resolve()).catch(() => undefined).then(write)
    this.writes.set(id, written)
    try {
      await written
    } finally {
      if (this.writes.get(id) === written) this.writes.delete(id)
    }
  }

  private reservedBytes(): number {
    let sum = 0
    for (const { bytes } of this.reservations.values()) sum += bytes
    return sum
  }

  private freeBytes(): number {
    return this.config.budgetBytes() - this.reservedBytes()
  }
}

function needsMessage(bytes: number, freeBytes: number, before: number): string {
  const others = before === 0 ? '' : `, ${before} before it`
  return `needs ${mib(bytes)}, ${mib(Math.max(freeBytes, 0))} free${others}`
}

function mib(bytes: number): string {
  return `${Math.round(bytes / 2 ** 20)} MiB`
}

function tooLarge(message: string): Kosa8Error {
  return new Kosa8Error('MEMORY_INSUFFICIENT', message, {
    hint: 'give the machine less memory (--mem), end other sandboxes (kosa8 ls), or use a larger host',
  })
}

function cancelled(request: ReservationRequest): Kosa8Error {
  return new Kosa8Error('CANCELLED', `${request.holder} no longer waits for memory`)
}
