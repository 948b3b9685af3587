import { describe, expect, it } from 'vitest'
import { defaultReserveBytes, planBudget } from '../../src/admission/budget.js'
import { MACHINE_OVERHEAD_BYTES, predictPeakBytes, PREDICTION_FLOOR_BYTES } from '../../src/admission/predictor.js'
import { CALM_STATE, decidePressure, type PreemptionCandidate, type PressureState } from '../../src/admission/pressure.js'
import type { TrialId } from '../../src/model/ids.js'

const MIB = 2 ** 20
const GIB = 2 ** 30

describe('the budget', () => {
  it('is what is available and what our machines hold already, without the reserve', () => {
    expect(planBudget({ memAvailableBytes: 8 * GIB, ownPrivateBytes: GIB, groups: [], reserveBytes: 2 * GIB })).toBe(7 * GIB)
  })

  it('takes the tightest control group for the size of the machine', () => {
    const groups = [{ limitBytes: 16 * GIB, workingSetBytes: GIB }, { limitBytes: 4 * GIB, workingSetBytes: 3 * GIB }]
    expect(planBudget({ memAvailableBytes: 64 * GIB, ownPrivateBytes: 2 * GIB, groups, reserveBytes: GIB })).toBe(2 * GIB)
  })

  it('is never negative', () => {
    expect(planBudget({ memAvailableBytes: MIB, ownPrivateBytes: 0, groups: [], reserveBytes: GIB })).toBe(0)
  })

  it.each([[GIB, 256 * MIB], [10 * GIB, GIB], [512 * GIB, 2 * GIB]])('leaves of %i bytes %i to the rest', (machine, reserve) => {
    expect(defaultReserveBytes(machine)).toBe(reserve)
  })
})

describe('the prediction of a peak', () => {
  const known = { history: [], runPeaks: [], memoryMib: 1024 }

  it('is half the machine when nothing is known', () => {
    expect(predictPeakBytes(known)).toBe(512 * MIB)
  })

  it('is the worst of the history with a margin', () => {
    expect(predictPeakBytes({ ...known, history: [100 * MIB, 200 * MIB, 50 * MIB] })).toBe(230 * MIB)
  })

  it('is the mean of the run and twice its spread, once there are two peaks', () => {
    expect(predictPeakBytes({ ...known, runPeaks: [100 * MIB, 300 * MIB] })).toBe(400 * MIB)
    expect(predictPeakBytes({ ...known, runPeaks: [300 * MIB] })).toBe(512 * MIB)
  })

  it('is the largest of all predictors', () => {
    expect(predictPeakBytes({ ...known, history: [500 * MIB], runPeaks: [100 * MIB, 300 * MIB] })).toBe(575 * MIB)
    expect(predictPeakBytes({ ...known, history: [100 * MIB], runPeaks: [100 * MIB, 300 * MIB] })).toBe(400 * MIB)
  })

  it('stays between the floor and all the machine could use', () => {
    expect(predictPeakBytes({ ...known, history: [MIB] })).toBe(PREDICTION_FLOOR_BYTES)
    expect(predictPeakBytes({ ...known, history: [4 * GIB] })).toBe(GIB + MACHINE_OVERHEAD_BYTES)
    expect(predictPeakBytes({ ...known, memoryMib: 32 })).toBe(PREDICTION_FLOOR_BYTES)
  })
})

describe('memory pressure', () => {
  const signals = (availablePercent: number, someAvg10: number | null = 0) =>
    ({ availableBytes: availablePercent * GIB, totalBytes: 100 * GIB, someAvg10 })
  const candidate = (name: string, startedAt: number, cpuMs = 0, isCollecting = false): PreemptionCandidate =>
    ({ trial: name as TrialId, startedAt, cpuMs, isCollecting })

  /** Feeds one reading per second and gives the seconds of a veto and who was displaced when. */
  function watch(readings: ReturnType<typeof signals>[], candidates: PreemptionCandidate[] = []) {
    let state: PressureState = CALM_STATE
    const vetoed: number[] = []
    const displaced: [number, string][] = []
    readings.forEach((reading, second) => {
      const decision = decidePressure(state, reading, candidates, second * 1000)
      state = decision.state
      if (decision.veto !== null) vetoed.push(second)
      if (decision.preempt !== null) displaced.push([second, decision.preempt.trial])
    })
    return { vetoed, displaced }
  }
  const lasting = (count: number, reading: ReturnType<typeof signals>) => Array.from({ length: count }, () => reading)

  it('vetoes at once, by available memory or by stalls, and names the numbers', () => {
    expect(decidePressure(CALM_STATE, signals(4), [], 0).veto).toBe('the host is short of memory (4096 of 102400 MiB available, 0 % of the time spent waiting for it)')
    expect(decidePressure(CALM_STATE, signals(50, 21), [], 0).veto).toContain('21 % of the time')
    expect(decidePressure(CALM_STATE, signals(50, null), [], 0).veto).toBeNull()
  })

  it('admits again only after calm has held, not at the first good reading', () => {
    const readings = [signals(4), ...lasting(9, signals(20)), signals(7), ...lasting(12, signals(20))]
    expect(watch(readings).vetoed).toEqual(Array.from({ length: 21 }, (_, second) => second))
  })

  it('between pressure and calm leaves things as they are', () => {
    expect(watch(lasting(30, signals(7))).vetoed).toEqual([])
    expect(watch([signals(4), ...lasting(30, signals(7))]).vetoed).toHaveLength(31)
  })

  it('displaces the youngest and cheapest once pressure has held, then lets the host settle', () => {
    const candidates = [candidate('old', 0), candidate('young-dear', 500, 900), candidate('young-cheap', 500, 100), candidate('middle', 200)]
    expect(watch(lasting(15, signals(1)), candidates).displaced).toEqual([[3, 'young-cheap'], [13, 'young-cheap']])
    expect(watch([signals(1), signals(1), signals(7), signals(1), signals(1)], candidates).displaced).toEqual([])
  })

  it('spares a trial whose evidence is being collected, and always the oldest', () => {
    expect(watch(lasting(5, signals(1)), [candidate('old', 0), candidate('young', 5, 0, true), candidate('middle', 3)]).displaced).toEqual([[3, 'middle']])
    expect(watch(lasting(60, signals(1)), [candidate('only', 0)]).displaced).toEqual([])
    expect(watch(lasting(60, signals(1)), [candidate('old', 0), candidate('young', 5, 0, true)]).displaced).toEqual([])
  })
})
