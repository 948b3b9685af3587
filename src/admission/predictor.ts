/**
 * How much private memory a trial will need at its peak.
 *
 * Pure. The maximum of several cheap predictors did better than any single clever one where it was
 * studied, and it errs on the safe side: a reservation too large costs waiting, one too small a crash.
 */

/** What is known before a trial starts. */
export interface PredictionInputs {
  /** Peaks of earlier trials of this approach from this checkpoint, bytes. */
  history: number[]
  /** Peaks of the trials of this run that have ended, bytes. */
  runPeaks: number[]
  /** Memory of the machine. */
  memoryMib: number
}

const MIB = 2 ** 20

/** An idle clone with a first command run was seen at 45 MiB; nothing is ever promised less than this. */
export const PREDICTION_FLOOR_BYTES = 64 * MIB

/** What QEMU needs beside the guest's memory: its own heap and the cap of the translation buffer. */
export const MACHINE_OVERHEAD_BYTES = 128 * MIB

/** Of the machine's memory, when nothing at all is known. */
const UNKNOWN_FRACTION = 0.5

/** The next run of the same thing may need a little more than the worst seen. */
const HISTORY_MARGIN = 1.15

const SIGMAS = 2

/** Fewer than this say nothing about their spread. */
const RUN_PEAKS_MIN = 2

/** Bytes to reserve: never below the floor, never above all the machine could use. */
export function predictPeakBytes(inputs: PredictionInputs): number {
  const ceiling = inputs.memoryMib * MIB + MACHINE_OVERHEAD_BYTES
  const predictions = [fromHistory(inputs.history), fromRun(inputs.runPeaks)].filter((bytes) => bytes !== null)
  const peak = predictions.length > 0 ? Math.max(...predictions) : inputs.memoryMib * MIB * UNKNOWN_FRACTION
  return Math.ceil(Math.min(Math.max(peak, PREDICTION_FLOOR_BYTES), ceiling))
}

function fromHistory(history: number[]): number | null {
  return history.length === 0 ? null : Math.max(...history) * HISTORY_MARGIN
}

function fromRun(peaks: number[]): number | null {
  if (peaks.length < RUN_PEAKS_MIN) return null
  const mean = peaks.reduce((sum, peak) => sum + peak, 0) / peaks.length
  const variance = peaks.reduce((sum, peak) => sum + (peak - mean) ** 2, 0) / peaks.length
  return mean + SIGMAS * Math.sqrt(variance)
}
