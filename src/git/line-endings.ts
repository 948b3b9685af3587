/**
 * Lines of a change that differ by their ending only, so that a reader knows how much of it is real.
 *
 * Owns: the count, from the two contents. How many lines changed at all is git's to say (changes.ts).
 */
import { diffLines } from 'diff'

/** More differing lines than this are not compared: the work grows with their square. */
const EDITS_MAX = 2000

/**
 * How many of the `insertions` git counts in a file go away when carriage returns at line ends do not count.
 * @returns null when the contents are too different to say.
 */
export function countEndingOnly(before: Buffer, after: Buffer, insertions: number): number | null {
  if (!before.includes(CARRIAGE_RETURN) && !after.includes(CARRIAGE_RETURN)) return 0
  const parts = diffLines(before.toString('latin1'), after.toString('latin1'), { stripTrailingCr: true, maxEditLength: EDITS_MAX })
  if (parts === undefined) return null
  const remaining = parts.reduce((sum, part) => sum + (part.added ? part.count : 0), 0)
  return Math.max(0, insertions - remaining)
}

const CARRIAGE_RETURN = 0x0d
