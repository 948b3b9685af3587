/**
 * What is known of the tests before any change, from one or more trials of the baseline.
 *
 * Owns: joining several baselines; a test they disagree on is flaky. Pure.
 */
import type { TrialRecord } from '../model/run.js'
import type { TestCase, TestRun, TestStatus } from '../model/tests.js'

/** What a status means for the comparison; skipped, todo and other prove nothing. */
export type Outcome = 'passing' | 'failing' | 'neutral'

/** The baseline as the comparison sees it. */
export interface BaselineFacts {
  /** Runs of the tests without any change; empty when none could be had. */
  runs: TestRun[]
  /** Every test of any run; a flaky one has the outcome `neutral`. */
  outcomes: Map<string, Outcome>
  flaky: Set<string>
  didNotRun: Set<string>
  /** Every run was read to its end, had tests and was not cut short. */
  isComplete: boolean
}

export function outcomeOf(status: TestStatus): Outcome {
  if (status === 'passed') return 'passing'
  return status === 'failed' || status === 'errored' ? 'failing' : 'neutral'
}

/** Joins the runs of the baseline; the order of the records does not matter. */
export function gatherBaseline(records: TrialRecord[]): BaselineFacts {
  const runs = [...records].sort((a, b) => a.repeat - b.repeat)
    .map((record) => record.tests).filter((tests) => tests !== null)
  const flaky = findFlaky(runs)
  const outcomes = new Map<string, Outcome>()
  for (const test of runs.flatMap((run) => run.cases)) {
    outcomes.set(test.name, flaky.has(test.name) ? 'neutral' : outcomeOf(test.status))
  }
  const didNotRun = new Set(runs.flatMap((run) => run.didNotRun.map((entry) => entry.name)))
  return { runs, outcomes, flaky, didNotRun, isComplete: runs.length > 0 && runs.every(ranToItsEnd) }
}

/** True when the tests ran, to the end, and could be read. */
export function ranToItsEnd(run: TestRun): boolean {
  return run.state === 'parsed' && run.complete && run.cases.length > 0 && !wasCutShort(run)
}

/** True when something ended the test command from outside. */
export function wasCutShort({ timedOut, signal, exitCode }: TestRun): boolean {
  return timedOut || signal !== null || exitCode === null || (exitCode > 128 && exitCode <= 192)
}

/** Tests with different outcomes in runs of the same code. */
export function findFlaky(runs: TestRun[]): Set<string> {
  const flaky = new Set<string>()
  const first = new Map<string, Outcome>()
  const look = (test: TestCase): void => {
    const outcome = outcomeOf(test.status)
    const former = first.get(test.name)
    if (former === undefined) first.set(test.name, outcome)
    else if (former !== outcome) flaky.add(test.name)
  }
  for (const run of runs) run.cases.forEach(look)
  return flaky
}
