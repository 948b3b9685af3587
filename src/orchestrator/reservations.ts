/**
 * Memory for trials, as a worker sees it.
 *
 * Owns: the contract. `reservation-client.ts` implements it over the daemon's socket.
 */
import type { RunId, TrialId } from '../model/ids.js'

/** What the memory is for. */
export interface ReservationWish {
  run: RunId
  trial: TrialId
  label: string
  checkpoint: string
  memoryMib: number
}

/** Memory that is set aside until released. */
export interface HeldReservation {
  /** Bytes set aside when it was granted. */
  readonly bytes: number
  /** Fires when it must be given back: reason PREEMPTED or CANCELLED. */
  readonly withdrawn: AbortSignal
  /** Tells the ledger of a new peak; never throws. */
  reportPeak(privateBytes: number): void
  release(): void
}

/** Where a worker gets memory from. */
export interface Reservations {
  /**
   * Waits until the memory is granted.
   * @throws MEMORY_INSUFFICIENT when it can never be, CANCELLED when the run was cancelled meanwhile,
   *   the reason of `signal`.
   */
  acquire(wish: ReservationWish, options: { signal: AbortSignal; onWaiting: (message: string) => void }): Promise<HeldReservation>
}
