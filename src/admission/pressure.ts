/**
 * What to do when the host suffers in spite of all predictions: first admit nobody, then displace one.
 *
 * Pure: state and signals in, state and decision out; the caller acts. A veto is lifted only after calm
 * has held for a while, and after each displacement the host gets time to recover before the next.
 *
 *   calm ──pressure──> vetoed ──pressure holds──> one trial displaced, then settle
 *    ^                   │
 *    └── calm holds ─────┘
 */
import type { TrialId } from '../model/ids.js'

/** Measured now. */
export interface PressureSignals {
  availableBytes: number
  totalBytes: number
  /** Share of the last ten seconds in which some task waited for memory, percent; null: the kernel does not say. */
  someAvg10: number | null
}

/** A running trial. Sandboxes and checkpoints are not candidates, ever. */
export interface PreemptionCandidate {
  trial: TrialId
  /** Monotonic milliseconds. */
  startedAt: number
  /** Work that would be lost. */
  cpuMs: number
  /** Its evidence is being collected: it is about to end by itself. */
  isCollecting: boolean
}

/** Remembered from tick to tick. Times are monotonic milliseconds, null: not so. */
export interface PressureState {
  pressedSince: number | null
  calmSince: number | null
  isVetoed: boolean
  lastPreemptionAt: number | null
}

/** What to do now. */
export interface PressureDecision {
  state: PressureState
  /** Why nothing may be admitted, with the numbers that decided; null: admit. */
  veto: string | null
  preempt: { trial: TrialId; reason: string } | null
}

export const CALM_STATE: PressureState = { pressedSince: null, calmSince: null, isVetoed: false, lastPreemptionAt: null }

/** Less than this share of the machine available is pressure. */
const AVAILABLE_LOW = 0.05
/** More than this is needed for calm: the gap is the hysteresis. */
const AVAILABLE_CALM = 0.1
/** Percent of time some task waited for memory. */
const STALL_HIGH = 20
const STALL_CALM = 5
/** How long pressure must hold before a trial is displaced; without swap there are only seconds. */
const PREEMPT_AFTER_MS = 3000
/** How long calm must hold before anything is admitted again. */
const CALM_HOLD_MS = 10_000
/** Time for a displaced machine's memory to come back before the next one goes. */
const SETTLE_MS = 10_000

/**
 * Decides one tick.
 * @param nowMs monotonic milliseconds
 */
export function decidePressure(
  state: PressureState, signals: PressureSignals, candidates: PreemptionCandidate[], nowMs: number,
): PressureDecision {
  const reading = readPressure(signals)
  const next = advance(state, reading, nowMs)
  const veto = next.isVetoed ? `the host is short of memory (${describe(signals)})` : null
  const victim = mayPreempt(next, nowMs) ? chooseVictim(candidates) : null
  if (victim === null) return { state: next, veto, preempt: null }
  return {
    state: { ...next, lastPreemptionAt: nowMs },
    veto,
    preempt: { trial: victim.trial, reason: `displaced, the host is short of memory (${describe(signals)})` },
  }
}

function readPressure(signals: PressureSignals): 'pressed' | 'calm' | 'between' {
  const available = signals.availableBytes / signals.totalBytes
  const stall = signals.someAvg10 ?? 0
  if (available < AVAILABLE_LOW || stall > STALL_HIGH) return 'pressed'
  return available > AVAILABLE_CALM && stall < STALL_CALM ? 'calm' : 'between'
}

function advance(state: PressureState, reading: 'pressed' | 'calm' | 'between', nowMs: number): PressureState {
  const pressedSince = reading === 'pressed' ? state.pressedSince ?? nowMs : null
  const calmSince = reading === 'calm' ? state.calmSince ?? nowMs : null
  const hasCalmed = calmSince !== null && nowMs - calmSince >= CALM_HOLD_MS
  return { ...state, pressedSince, calmSince, isVetoed: reading === 'pressed' || (state.isVetoed && !hasCalmed) }
}

function mayPreempt(state: PressureState, nowMs: number): boolean {
  if (state.pressedSince === null || nowMs - state.pressedSince < PREEMPT_AFTER_MS) return false
  return state.lastPreemptionAt === null || nowMs - state.lastPreemptionAt >= SETTLE_MS
}

/**
 * The youngest, among equals the cheapest. The oldest trial is never displaced: it would come back to the
 * same memory, and as long as one goes on to its end nobody starves.
 */
function chooseVictim(candidates: PreemptionCandidate[]): PreemptionCandidate | null {
  const byWorth = [...candidates].sort((a, b) => b.startedAt - a.startedAt || a.cpuMs - b.cpuMs)
  return byWorth.slice(0, -1).find((candidate) => !candidate.isCollecting) ?? null
}

function describe(signals: PressureSignals): string {
  const mib = (bytes: number): number => Math.round(bytes / 2 ** 20)
  const stall = signals.someAvg10 === null ? '' : `, ${signals.someAvg10} % of the time spent waiting for it`
  return `${mib(signals.availableBytes)} of ${mib(signals.totalBytes)} MiB available${stall}`
}
