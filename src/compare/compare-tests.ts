/**
 * One trial's tests against the baseline's, name by name. Pure.
 */
import type { TestRun } from '../model/tests.js'
import { outcomeOf, type BaselineFacts } from './baseline-facts.js'

/** Names by what became of them; a flaky test is in `flaky` and in no other list but `missing` and `added`. */
export interface TestChanges {
  fixed: string[]
  regressed: string[]
  stillFailing: string[]
  missing: string[]
  added: string[]
  flaky: string[]
}

/**
 * Sorts every test into its list.
 * - regressed: passed before and does not now (a test that is skipped now proves no more), or fails now and did
 *   not before;
 * - stillFailing: failed before and does not pass now;
 * - missing: was there before, whatever its outcome, and is not now. It is never counted as fixed.
 * @param flakyHere tests with mixed outcomes over repeats of this trial's code
 */
export function compareTests(baseline: BaselineFacts, run: TestRun, flakyHere: Set<string>): TestChanges {
  const changes: TestChanges = { fixed: [], regressed: [], stillFailing: [], missing: [], added: [], flaky: [] }
  const now = new Map(run.cases.map((test) => [test.name, outcomeOf(test.status)]))
  for (const [name, before] of baseline.outcomes) {
    const outcome = now.get(name)
    if (outcome === undefined) changes.missing.push(name)
    else if (baseline.flaky.has(name) || flakyHere.has(name)) changes.flaky.push(name)
    else if (before === 'failing') (outcome === 'passing' ? changes.fixed : changes.stillFailing).push(name)
    else if (outcome === 'failing' || (before === 'passing' && outcome !== 'passing')) changes.regressed.push(name)
  }
  for (const name of now.keys()) {
    if (baseline.outcomes.has(name)) continue
    changes.added.push(name)
    if (flakyHere.has(name)) changes.flaky.push(name)
  }
  return changes
}
