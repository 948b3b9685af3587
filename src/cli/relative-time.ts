/** Times as people say them. Pure. */

const UNITS: readonly [letter: string, seconds: number][] = [['d', 86_400], ['h', 3_600], ['m', 60]]

/** "just now" within the first minute, then "2m ago", "3h ago", "5d ago". */
export function tellAge(instant: string, nowMs: number): string {
  const seconds = (nowMs - Date.parse(instant)) / 1000
  const unit = UNITS.find(([, size]) => seconds >= size)
  return unit === undefined ? 'just now' : `${Math.floor(seconds / unit[1])}${unit[0]} ago`
}
