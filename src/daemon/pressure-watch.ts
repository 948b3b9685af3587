/**
 * Looks at the host's memory once a second and acts on what the policy decides.
 *
 * Owns: the tick. Signals and policy are `admission`'s, the ledger's veto and the displaced trial are the book's.
 */
import { defaultReserveBytes, planBudget } from '../admission/budget.js'
import type { Ledger } from '../admission/ledger.js'
import { CALM_STATE, decidePressure, type PressureState } from '../admission/pressure.js'
import { readGroups, readHostMemory, readMemoryStall } from '../admission/signals/memory-signals.js'
import type { Clock } from '../util/clock.js'
import type { ReservationBook } from './reservation-book.js'

const TICK_MS = 1_000

/** What the watch works with. `book` and `ledger` come later: the ledger asks this watch for its budget. */
export interface PressureWatchParts {
  clock: Clock
  /** A limit the user set below what the machine has, bytes; null: none. */
  budgetLimitBytes: number | null
  onError: (message: string, error: unknown) => void
}

/** Knows the budget of this host, and keeps it up to date while started. */
export class PressureWatch {
  private budget = 0
  private state: PressureState = CALM_STATE
  private timer: NodeJS.Timeout | undefined

  constructor(private readonly parts: PressureWatchParts) {}

  /** Bytes that may be promised in all, as of the last tick. */
  get budgetBytes(): number {
    return this.budget
  }

  /** Measures for the first time. */
  async prime(ownPrivateBytes: number): Promise<void> {
    await this.measure(ownPrivateBytes)
  }

  start(ledger: Ledger, book: ReservationBook): void {
    const tick = async (): Promise<void> => {
      try {
        await this.tick(ledger, book)
      } catch (error) {
        this.parts.onError('measuring memory failed', error)
      }
      if (this.timer !== undefined) this.timer = setTimeout(() => void tick(), TICK_MS)
    }
    this.timer = setTimeout(() => void tick(), TICK_MS)
  }

  stop(): void {
    clearTimeout(this.timer)
    this.timer = undefined
  }

  private async tick(ledger: Ledger, book: ReservationBook): Promise<void> {
    const memory = await this.measure(book.ownPrivateBytes())
    const decision = decidePressure(this.state, {
      availableBytes: memory.availableBytes, totalBytes: memory.totalBytes, someAvg10: await readMemoryStall(),
    }, book.candidates(), this.parts.clock.monotonic())
    this.state = decision.state
    ledger.setVeto(decision.veto)
    if (decision.preempt !== null) book.preempt(decision.preempt.trial, decision.preempt.reason)
    ledger.refresh()
  }

  private async measure(ownPrivateBytes: number): Promise<{ totalBytes: number; availableBytes: number }> {
    const memory = await readHostMemory()
    const measured = planBudget({
      memAvailableBytes: memory.availableBytes, ownPrivateBytes, groups: await readGroups(),
      reserveBytes: defaultReserveBytes(memory.totalBytes),
    })
    this.budget = Math.min(measured, this.parts.budgetLimitBytes ?? Infinity)
    return memory
  }
}
