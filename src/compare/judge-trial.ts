/**
 * The verdict on one trial: the rule, in one place.
 *
 * The first line that holds decides:
 *
 *  1. an error of ours, or cancelled                                        unscored
 *  2. the run has no test command                                           same, for every approach
 *  3. no test run of the trial, or no baseline                              unscored
 *  4. the trial's results cannot be read, the baseline had tests            worse
 *  5. neither can be read: exit status equal -> same; 0 to not 0 -> worse; anything else -> unscored
 *  6. the baseline's cannot be read: it failed and the trial passed -> better; else unscored
 *  7. a test regressed or is missing, a file no longer runs, or the tests did not run to their end as the
 *     baseline's did                                                        worse
 *  8. the trial changed nothing                                             same
 *  9. a test is fixed, or tests run and pass that could not run before      better
 * 10. else                                                                  same
 *
 * "The trial's tests" are those with the baseline's test files put back, so editing tests gains nothing. Flaky
 * tests count neither as fixed nor as regressed. A better trial can win only if its strategy came to a clean end
 * and the exit status is explained by the tests.
 */
import type { TrialRecord, Verdict } from '../model/run.js'
import type { TestRun } from '../model/tests.js'
import { outcomeOf, ranToItsEnd, wasCutShort, type BaselineFacts } from './baseline-facts.js'
import type { TestChanges } from './compare-tests.js'
import { countOf } from '../util/count-of.js'
import { listSome } from './counts.js'

/** What the rule says of one trial. */
export interface Judgement {
  verdict: Verdict
  /** Short sentences, the deciding ones first. */
  reasons: string[]
}

/** Everything the rule looks at. */
export interface TrialCase {
  record: TrialRecord
  baseline: BaselineFacts
  changes: TestChanges
  hasTestCommand: boolean
}

/** Applies the rule of this file. */
export function judgeTrial(trial: TrialCase): Judgement {
  const { record, baseline, hasTestCommand } = trial
  if (record.state === 'error') {
    const { error } = record
    const why = error === null ? 'the trial could not be carried out' : `${error.code}: ${error.message}`
    return { verdict: 'unscored', reasons: [why] }
  }
  if (record.state === 'cancelled') return { verdict: 'unscored', reasons: ['cancelled'] }
  const tests = record.tests
  if (!hasTestCommand || tests?.state === 'none') {
    return { verdict: 'same', reasons: ['no tests configured', ...stateRemarks(record)] }
  }
  if (tests === null) return { verdict: 'unscored', reasons: ['its tests were not run', ...stateRemarks(record)] }
  const judged = baseline.runs.length === 0
    ? { verdict: 'unscored' as const, reasons: ['there is no baseline to compare with'] }
    : judgeTests(trial, tests)
  return { verdict: judged.verdict, reasons: [...judged.reasons, ...tamperRemarks(record), ...stateRemarks(record)] }
}

function judgeTests(trial: TrialCase, tests: TestRun): Judgement {
  const { baseline } = trial
  const baselineIsParsed = baseline.runs.some((run) => run.state === 'parsed')
  if (tests.state === 'unparsed') {
    if (baseline.outcomes.size === 0) return judgeExit(baseline.runs, tests)
    return { verdict: 'worse', reasons: [`its test results could not be read: ${tests.reason ?? 'no report'}`] }
  }
  if (!baselineIsParsed) return judgeAgainstUnread(baseline.runs, tests)
  const objections = findObjections(trial, tests)
  const gains = findGains(trial, tests)
  if (objections.length > 0) return { verdict: 'worse', reasons: [...objections, ...gains, ...remainder(trial, false)] }
  if (gains.length > 0 && changedNothing(trial.record)) {
    return { verdict: 'same', reasons: ['it changed nothing, so what its tests say is not its doing'] }
  }
  if (gains.length > 0) return { verdict: 'better', reasons: [...gains, ...remainder(trial, true)] }
  return { verdict: 'same', reasons: ['no test changed its outcome', ...remainder(trial, true)] }
}

function judgeExit(runs: TestRun[], tests: TestRun): Judgement {
  const before = [...new Set(runs.map(describeExit))]
  const now = describeExit(tests)
  const unread = 'the results could not be read'
  if (before.length > 1) {
    return { verdict: 'unscored', reasons: [`${unread}, and the baseline ended in different ways (${before.join(', ')})`] }
  }
  if (before[0] === now) return { verdict: 'same', reasons: [`${unread}; ${now} as in the baseline`] }
  const verdict = before[0] === 'exit status 0' ? 'worse' : 'unscored'
  return { verdict, reasons: [`${unread}; ${now} where the baseline had ${before[0] ?? 'none'}`] }
}

function judgeAgainstUnread(runs: TestRun[], tests: TestRun): Judgement {
  const before = runs[0] === undefined ? 'none' : describeExit(runs[0])
  if (runs.every((run) => run.verdict === 'failed') && tests.verdict === 'passed') {
    const passing = `${countOf(tests.cases.length, 'test')} ran and passed`
    return { verdict: 'better', reasons: [`${passing}; the baseline got to none (${before})`] }
  }
  return { verdict: 'unscored', reasons: [`the baseline's results could not be read (${before})`] }
}

function describeExit(run: TestRun): string {
  if (run.timedOut) return 'time limit'
  if (run.signal !== null) return `signal ${run.signal}`
  return `exit status ${run.exitCode ?? 'unknown'}`
}

/** All that makes a trial worse. */
function findObjections({ baseline, changes }: TrialCase, tests: TestRun): string[] {
  const objections: string[] = []
  if (baseline.isComplete && !ranToItsEnd(tests)) {
    objections.push(`the tests did not run to their end: ${tests.reason ?? 'no tests ran'}`)
  }
  const { regressed, missing } = changes
  if (regressed.length > 0) objections.push(`breaks ${countOf(regressed.length, 'test')} (${listSome(regressed)})`)
  if (missing.length > 0) {
    const are = verb(missing, 'is', 'are')
    objections.push(`${countOf(missing.length, 'test')} of the baseline ${are} missing (${listSome(missing)})`)
  }
  const broken = tests.didNotRun.map((entry) => entry.name).filter((name) => !baseline.didNotRun.has(name))
  if (broken.length > 0) objections.push(`${listSome(broken)} did not run`)
  const wasClean = baseline.runs.every((run) => run.exitCode === 0)
  if (wasClean && isExitUnexplained(tests)) objections.push(tellUnexplainedExit(tests))
  return objections
}

/** All that makes a trial better. */
function findGains({ baseline, changes }: TrialCase, tests: TestRun): string[] {
  const gains: string[] = []
  const { fixed, added, flaky } = changes
  if (fixed.length > 0) gains.push(`fixes ${countOf(fixed.length, 'test')} (${listSome(fixed)})`)
  const outcomes = new Map(tests.cases.map((test) => [test.name, outcomeOf(test.status)]))
  const newlyPassing = added.filter((name) => outcomes.get(name) === 'passing' && !flaky.includes(name))
  const broken = new Set(tests.didNotRun.map((entry) => entry.name))
  const repaired = [...baseline.didNotRun].filter((name) => !broken.has(name))
  const couldNotRun = repaired.length > 0
    || baseline.runs.every((run) => run.verdict === 'failed' && !ranToItsEnd(run))
  if (couldNotRun && newlyPassing.length > 0 && ranToItsEnd(tests)) {
    const before = repaired.length > 0 ? listSome(repaired) : 'the tests'
    gains.push(`${countOf(newlyPassing.length, 'test')} that could not run in the baseline `
      + `${verb(newlyPassing, 'passes', 'pass')} now (${before} did not run)`)
  }
  return gains
}

function remainder({ baseline, changes, record }: TrialCase, tellFlaky: boolean): string[] {
  const remarks: string[] = []
  const { stillFailing, added, flaky } = changes
  const { tests } = record
  if (stillFailing.length > 0) {
    remarks.push(`${countOf(stillFailing.length, 'test')} still ${verb(stillFailing, 'fails', 'fail')}`)
  }
  const failing = new Set(failingOf(tests))
  const addedFailing = added.filter((name) => failing.has(name))
  if (addedFailing.length > 0) {
    remarks.push(`${countOf(addedFailing.length, 'added test')} ${verb(addedFailing, 'fails', 'fail')}`)
  }
  if (tellFlaky && flaky.length > 0) {
    const count = `${countOf(flaky.length, 'flaky test')} ${verb(flaky, 'counts', 'count')}`
    remarks.push(`${count} for nothing (${listSome(flaky)})`)
  }
  if (tests !== null && isExitUnexplained(tests) && baseline.runs.some((run) => run.exitCode !== 0)) {
    remarks.push(tellUnexplainedExit(tests))
  }
  return remarks
}

/** A status other than 0 that no test accounts for; only such a trial cannot win. */
export function isExitUnexplained(tests: TestRun): boolean {
  if (tests.state !== 'parsed' || tests.exitCode === 0 || wasCutShort(tests)) return false
  return tests.didNotRun.length === 0 && !tests.cases.some((test) => outcomeOf(test.status) === 'failing')
}

function tellUnexplainedExit({ exitCode }: TestRun): string {
  return `exit status ${exitCode ?? 'unknown'} although no test failed`
}

function changedNothing(record: TrialRecord): boolean {
  return record.diff?.files === 0 || record.notes.includes('ended without changes')
}

function tamperRemarks({ tampered, tests }: TrialRecord): string[] {
  if (tampered.length === 0) return []
  const failing = failingOf(tests)
  const edited = `edited ${countOf(tampered.length, 'test file')} (${listSome(tampered)})`
  if (failing.length === 0) return [`${edited}; the original tests were put back and decide`]
  return [`${edited}; with the original tests ${failing.length} still ${verb(failing, 'fails', 'fail')}`]
}

function failingOf(tests: TestRun | null): string[] {
  return tests?.cases.filter((test) => outcomeOf(test.status) === 'failing').map((test) => test.name) ?? []
}

/** Notes of the strategy that bear on the verdict, and how it ended where that was not well. */
function stateRemarks({ state, notes, error, exitCode }: TrialRecord): string[] {
  const isStop = (note: string): boolean => note.startsWith('stopped:')
  const remarks = notes.filter((note) => isStop(note) || note === 'ended without changes' || note === 'asked for input')
  if (state === 'timedOut' && !remarks.some(isStop)) remarks.push('stopped: limit')
  if (state !== 'failed') return remarks
  const status = exitCode === null ? '' : ` with exit status ${exitCode}`
  return [...remarks, error === null ? `its strategy failed${status}` : `its strategy failed: ${error.message}`]
}

function verb(list: readonly unknown[], one: string, many: string): string {
  return list.length === 1 ? one : many
}
