import { setImmediate } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { planBudget } from '../../src/admission/budget.js'
import { Ledger } from '../../src/admission/ledger.js'
import { predictPeakBytes } from '../../src/admission/predictor.js'
import { CALM_STATE, decidePressure } from '../../src/admission/pressure.js'
import type { TrialId } from '../../src/model/ids.js'
import type { Reservation } from '../../src/model/reservation.js'

const GIB = 2 ** 30
const MIB = 2 ** 20
const TOTAL_BYTES = 16 * GIB
const SLOTS = 32
const TICK_MS = 1000
const owner = { pid: 1, startTicks: 1 }

interface Running {
  trial: Trial
  reservation: Reservation
  startedAt: number
  endsAt: number
}

interface Trial {
  id: number
  approach: number
  durationMs: number
  peakBytes: number
  displaced: number
}

/** Always the same numbers, so that a failure can be looked at again. */
function createRandom(seed: number): () => number {
  let state = seed
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return state / 2 ** 32
  }
}

/** A host with other tenants, whose use swings and at times leaps, and workers that feed on a trace of trials. */
class Host {
  nowMs = 0
  readonly running = new Map<number, Running>()
  readonly finished = new Set<number>()
  readonly displacedAt: number[] = []
  mostDisplaced = 0
  grants = 0
  vetoed = 0
  /** The next one is the last. */
  private readonly queue: Trial[]
  private waiting = 0
  private asked = 0
  private served = 0
  private failure: Error | null = null
  private usedNow: number | null = null
  private pressure = CALM_STATE
  private readonly peaks = new Map<number, number[]>()
  readonly ledger = new Ledger({
    budgetBytes: () => this.budget(),
    memory: { save: async () => undefined, remove: async () => undefined },
    clock: { now: () => this.nowMs, monotonic: () => this.nowMs },
  })

  constructor(trials: Trial[]) {
    this.queue = [...trials].reverse()
  }

  async run(): Promise<void> {
    const count = this.queue.length
    const deadline = count * 10
    while (this.finished.size < count) {
      if (this.failure !== null) throw this.failure
      if (this.nowMs / 1000 > deadline) throw new Error(`no progress: ${this.finished.size} of ${count} ended, ${this.waiting} wait`)
      await this.tick()
      this.nowMs += TICK_MS
      this.usedNow = null
    }
  }

  private async tick(): Promise<void> {
    for (const entry of [...this.running.values()]) if (entry.endsAt <= this.nowMs) await this.end(entry)
    while (this.running.size + this.waiting < SLOTS && this.queue.length > 0) this.ask(this.queue.pop() as Trial)
    // What was granted is taken note of before time, and the others' use, move on.
    await setImmediate()
    await this.watchPressure()
    this.ledger.refresh()
    await setImmediate()
  }

  private async end(entry: Running): Promise<void> {
    this.running.delete(entry.trial.id)
    this.usedNow = null
    if (this.finished.has(entry.trial.id)) throw new Error(`trial ${entry.trial.id} ended twice`)
    this.finished.add(entry.trial.id)
    const peaks = this.peaks.get(entry.trial.approach) ?? []
    this.peaks.set(entry.trial.approach, [...peaks.slice(-9), entry.trial.peakBytes])
    await this.ledger.release(entry.reservation.id)
  }

  private ask(trial: Trial): void {
    const bytes = predictPeakBytes({ history: this.peaks.get(trial.approach) ?? [], runPeaks: [], memoryMib: 1024 })
    const number = this.asked += 1
    this.waiting += 1
    void this.ledger.reserve({ bytes, holder: `trial ${trial.id}`, kind: 'trial', owner }).then((reservation) => {
      this.waiting -= 1
      this.served += 1
      if (number !== this.served) throw new Error(`request ${number} was served as number ${this.served}`)
      const status = this.ledger.status()
      if (status.veto !== null) throw new Error(`admitted in spite of: ${status.veto}`)
      if (status.reservedBytes > status.budgetBytes) throw new Error(`promised ${status.reservedBytes} of ${status.budgetBytes}`)
      this.grants += 1
      this.running.set(trial.id, { trial, reservation, startedAt: this.nowMs, endsAt: this.nowMs + trial.durationMs })
    }).catch((error: unknown) => { this.failure = error as Error })
  }

  private async watchPressure(): Promise<void> {
    const candidates = [...this.running.values()].map((entry) => ({
      trial: String(entry.trial.id) as TrialId, startedAt: entry.startedAt, cpuMs: this.nowMs - entry.startedAt, isCollecting: false,
    }))
    const signals = { availableBytes: this.available(), totalBytes: TOTAL_BYTES, someAvg10: null }
    const decision = decidePressure(this.pressure, signals, candidates, this.nowMs)
    this.pressure = decision.state
    this.ledger.setVeto(decision.veto)
    if (decision.veto !== null) this.vetoed += 1
    if (decision.preempt !== null) await this.displace(Number(decision.preempt.trial))
  }

  private async displace(id: number): Promise<void> {
    const victim = this.running.get(id)
    if (victim === undefined) throw new Error(`displaced what does not run: ${id}`)
    const oldest = Math.min(...[...this.running.values()].map(({ startedAt }) => startedAt))
    const others = [...this.running.values()].filter(({ trial }) => trial.id !== id)
    if (others.length === 0 || others.every(({ startedAt }) => startedAt > oldest)) throw new Error('displaced the oldest trial')
    this.displacedAt.push(this.nowMs)
    this.running.delete(id)
    this.usedNow = null
    victim.trial.displaced += 1
    this.mostDisplaced = Math.max(this.mostDisplaced, victim.trial.displaced)
    this.queue.push(victim.trial)
    await this.ledger.release(victim.reservation.id)
  }

  /** Memory of the others: 2 to 6 GiB, and every five minutes for 40 s nearly all there is. */
  private others(): number {
    const seconds = this.nowMs / 1000
    const leap = seconds % 300 < 40 ? 8 * GIB : 0
    return 4 * GIB + 2 * GIB * Math.sin(seconds / 97) + leap
  }

  /** Grows with time; what was just granted uses nothing yet, so only time and ends change it. */
  private used(): number {
    if (this.usedNow !== null) return this.usedNow
    let sum = 0
    for (const { trial, startedAt, endsAt } of this.running.values()) {
      sum += trial.peakBytes * Math.min(1, (this.nowMs - startedAt) / (endsAt - startedAt))
    }
    return this.usedNow = sum
  }

  private available(): number {
    return Math.max(0, TOTAL_BYTES - this.others() - this.used())
  }

  private budget(): number {
    return planBudget({ memAvailableBytes: this.available(), ownPrivateBytes: this.used(), groups: [], reserveBytes: GIB })
  }
}

describe('admission on a trace of 100,000 trials', () => {
  it('never promises more than there is, serves in order, displaces one at a time, and brings every trial to its end', async () => {
    const random = createRandom(7)
    const trials = Array.from({ length: 100_000 }, (_, id) => {
      const approach = Math.floor(random() * 20)
      return {
        id, approach, durationMs: 1000 + random() * 20_000, displaced: 0,
        peakBytes: (60 + approach * 30 + random() * 120) * MIB,
      }
    })
    const host = new Host(trials)
    await host.run()
    expect(host.finished.size).toBe(100_000)
    expect(host.running.size).toBe(0)
    expect(host.ledger.status()).toMatchObject({ reservedBytes: 0, reservations: [], waiting: [] })
    // The trace is hard enough to mean something: vetoes and displacements did happen.
    expect(host.vetoed).toBeGreaterThan(1000)
    expect(host.displacedAt.length).toBeGreaterThan(100)
    expect(host.grants).toBe(100_000 + host.displacedAt.length)
    expect(host.mostDisplaced).toBeLessThan(10)
    const gaps = host.displacedAt.slice(1).map((at, index) => at - (host.displacedAt[index] ?? 0))
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(10_000)
  })
})
