/** Sizes and durations as people write them: "512M", "2G", "90s", "30m". Pure. */

const MIB_PER_UNIT: Record<string, number> = { M: 1, G: 1024, T: 1024 * 1024 }
const MS_PER_UNIT: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** "512M", "2G", "1.5GiB" in MiB; null when it is no size or no whole number of MiB. */
export function parseMemoryMib(text: string): number | null {
  const match = /^(\d+(?:\.\d+)?) ?([MGT])(?:i?B)?$/i.exec(text.trim())
  if (match === null) return null
  const mib = Number(match[1]) * (MIB_PER_UNIT[(match[2] as string).toUpperCase()] as number)
  return Number.isInteger(mib) && mib > 0 ? mib : null
}

/** "90s", "30m", "1h30m" in milliseconds; null when it is no duration above zero. */
export function parseDurationMs(text: string): number | null {
  const compact = text.trim().replaceAll(' ', '')
  if (!/^(\d+(?:\.\d+)?(?:ms|s|m|h|d))+$/.test(compact)) return null
  let totalMs = 0
  for (const [, amount, unit] of compact.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)) {
    totalMs += Number(amount) * (MS_PER_UNIT[unit as string] as number)
  }
  const wholeMs = Math.round(totalMs)
  return wholeMs > 0 && Number.isSafeInteger(wholeMs) ? wholeMs : null
}
