/**
 * Counts of one run of the tests, and lists of names. Used by this folder and by `report`.
 */
import type { TestCounts, TestRun } from '../model/tests.js'

export const NO_COUNTS: TestCounts = { total: 0, passed: 0, failed: 0, skipped: 0, errored: 0 }

/** Counts leaf tests; a to-do counts as skipped. */
export function countTests(run: Pick<TestRun, 'cases'> | null): TestCounts {
  const counts = { ...NO_COUNTS }
  for (const { status } of run?.cases ?? []) {
    counts.total += 1
    if (status === 'todo') counts.skipped += 1
    else if (status !== 'other') counts[status] += 1
  }
  return counts
}

/** A few names and how many more there are; at most `max` names. */
export function listSome(names: readonly string[], max = 3): string {
  const shown = names.slice(0, max).join(', ')
  return names.length > max ? `${shown} and ${names.length - max} more` : shown
}
