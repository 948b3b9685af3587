/**
 * What a series of measurements says: its median, its slow end, its worst.
 *
 * Owns: the figures every benchmark reports, and nothing else. Pure.
 */

/** A labelled series; `unit` says what one value is. */
export interface Series {
  label: string
  unit: 'ms' | 'MiB' | 'per s' | 'times' | 'MB/s'
  values: number[]
}

/** Figures of one series, in its unit. */
export interface Summary {
  n: number
  p50: number
  p95: number
  max: number
}

/** Summarises a series. @throws RangeError when it is empty. */
export function summarize(values: readonly number[]): Summary {
  return { n: values.length, p50: percentile(values, 50), p95: percentile(values, 95), max: percentile(values, 100) }
}

/** The value that `percent` of the values do not exceed (nearest rank). @throws RangeError when there is none. */
export function percentile(values: readonly number[], percent: number): number {
  const sorted = [...values].sort((a, b) => a - b)
  const value = sorted[Math.max(0, Math.ceil((percent / 100) * sorted.length) - 1)]
  if (value === undefined) throw new RangeError('a series without values')
  return value
}

/** The median. @throws RangeError when there is no value. */
export function median(values: readonly number[]): number {
  return percentile(values, 50)
}
