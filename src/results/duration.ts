/**
 * Durations as report writers spell them. Used by the JUnit parser.
 */

/** No test takes longer than this; such a figure is a mistake of the writer. */
const SECONDS_MAX = 1e9

/**
 * Milliseconds from a JUnit `time` attribute in seconds; null where the text says nothing certain.
 * "1,234.567" and "1,002,003.5" have thousands commas, "0,160" and "12,5" a decimal comma; "1,234" could be
 * either and is unknown.
 */
export function parseSeconds(text: string | undefined): number | null {
  const trimmed = (text ?? '').trim()
  const seconds = readNumber(trimmed)
  if (seconds === null || !(seconds >= 0 && seconds <= SECONDS_MAX)) return null
  return Math.round(seconds * 1e9) / 1e6
}

function readNumber(text: string): number | null {
  if (text.length > 40) return null
  if (/^(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text)) return Number(text)
  const hasThousands = /^[1-9]\d{0,2}(,\d{3})+\.\d+$/.test(text) || /^[1-9]\d{0,2}(,\d{3}){2,}$/.test(text)
  if (hasThousands) return Number(text.replaceAll(',', ''))
  const hasDecimalComma = /^0,\d+$/.test(text) || /^\d+,(\d{1,2}|\d{4,})$/.test(text)
  return hasDecimalComma ? Number(text.replace(',', '.')) : null
}
