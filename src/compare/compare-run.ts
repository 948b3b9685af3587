/**
 * From the evidence of a run to its verdicts, ranking and winner.
 *
 * Owns: putting the steps together. The verdict rule is in `judge-trial.ts`, the ranking in `rank.ts`. Pure: the
 * same records in any order give the same answer. Called by the compare step; reports only render what it says.
 */
import type { RunDocument, RunPlan, TrialRecord, TrialResult } from '../model/run.js'
import type { TestRun, TrialTests } from '../model/tests.js'
import { findFlaky, gatherBaseline, outcomeOf, type BaselineFacts } from './baseline-facts.js'
import { compareTests, type TestChanges } from './compare-tests.js'
import { countOf } from '../util/count-of.js'
import { countTests, listSome, NO_COUNTS } from './counts.js'
import { isExitUnexplained, judgeTrial } from './judge-trial.js'
import { rankApproaches, type RankedTrial } from './rank.js'

/** The judged part of a run document. */
export interface RunComparison {
  /** In the order of the plan, repeats ascending. */
  trials: TrialResult[]
  baseline: RunDocument['baseline']
  /** Approach labels, best first; every label of the plan once. */
  ranking: string[]
  winner: string | null
  reasons: string[]
}

const NO_CHANGES: TestChanges = { fixed: [], regressed: [], stillFailing: [], missing: [], added: [], flaky: [] }

/**
 * Compares every trial with the baseline and the approaches with each other.
 * @param baseline trials without a change, from the same checkpoint; may be empty
 */
export function compareRun(plan: RunPlan, baseline: TrialRecord[], trials: TrialRecord[]): RunComparison {
  const facts = gatherBaseline(baseline)
  const labels = plan.approaches.map((approach) => approach.label)
  const ordered = [...trials].sort((a, b) => labels.indexOf(a.label) - labels.indexOf(b.label) || a.repeat - b.repeat)
  const hasTestCommand = plan.test !== null
  const flakyOf = findFlakyByCode(ordered)
  const ranked = ordered.map((record): RankedTrial => {
    const changes = changesOf(record, facts, flakyOf(record))
    const judgement = judgeTrial({ record, baseline: facts, changes, hasTestCommand })
    const result = { ...withoutEvidence(record), ...judgement, tests: testsOf(record, changes) }
    return { result, isClean: isClean(record) }
  })
  const { ranking, winner, reasons } = rankApproaches(labels, ranked)
  return {
    trials: ranked.map((trial) => trial.result),
    baseline: baselineOf(baseline, facts),
    ranking,
    winner,
    reasons: [...reasons, ...baselineRemarks(facts, hasTestCommand)],
  }
}

/**
 * Finds flaky tests by code: repeats of one approach that came to the same tree ran the same code, and where they
 * disagree, the test is flaky. Repeats with different trees are different changes, and their difference is theirs.
 */
function findFlakyByCode(records: TrialRecord[]): (record: TrialRecord) => Set<string> {
  const codeOf = ({ label, diff }: TrialRecord): string => `${label}\n${diff?.tree ?? ''}`
  const runs = new Map<string, TestRun[]>()
  for (const record of records) {
    if (record.tests !== null) runs.set(codeOf(record), [...(runs.get(codeOf(record)) ?? []), record.tests])
  }
  const flaky = new Map([...runs].map(([code, same]) => [code, findFlaky(same)]))
  return (record) => flaky.get(codeOf(record)) ?? new Set()
}

function changesOf(record: TrialRecord, facts: BaselineFacts, flakyHere: Set<string>): TestChanges {
  const isComparable = record.tests?.state === 'parsed' && facts.runs.some((run) => run.state === 'parsed')
  return record.tests !== null && isComparable ? compareTests(facts, record.tests, flakyHere) : NO_CHANGES
}

function isClean(record: TrialRecord): boolean {
  const wasStopped = record.notes.some((note) => note.startsWith('stopped:'))
  return record.state === 'completed' && !wasStopped
    && (record.tests === null || !isExitUnexplained(record.tests))
}

function withoutEvidence(record: TrialRecord): Omit<TrialResult, 'verdict' | 'reasons' | 'tests'> {
  const { approach, label, repeat, parameters, state, diff, exitCode } = record
  const { timingsMs, memory, usage, notes, log, error } = record
  return { approach, label, repeat, parameters, state, diff, exitCode, timingsMs, memory, usage, notes, log, error }
}

function testsOf({ tests, ownTests, tampered }: TrialRecord, changes: TestChanges): TrialTests {
  const run = tests ?? NOT_RUN
  const { state, verdict, reason, complete, didNotRun, warnings, staleReports } = run
  const own = ownTests === null ? {} : { own: countTests(ownTests) }
  return {
    ...countTests(run), state, verdict, reason, complete, didNotRun,
    ...changes, tampered, ...own, warnings, staleReports,
  }
}

const NOT_RUN: TestRun = {
  state: 'none', verdict: 'noTests', reason: 'the tests were not run', cases: [], didNotRun: [], complete: false,
  exitCode: null, signal: null, timedOut: false, warnings: [], staleReports: [],
}

function baselineOf(records: TrialRecord[], facts: BaselineFacts): RunDocument['baseline'] {
  const byRepeat = [...records].sort((a, b) => a.repeat - b.repeat)
  const record = byRepeat.find((candidate) => candidate.tests !== null) ?? byRepeat[0]
  if (record === undefined) return null
  const { state, verdict, reason, warnings } = record.tests ?? NOT_RUN
  const counts = record.tests === null ? NO_COUNTS : countTests(record.tests)
  const failing = [...facts.outcomes].filter(([, outcome]) => outcome === 'failing').map(([name]) => name)
  return {
    tests: { ...counts, state, verdict, reason, failing, flaky: [...facts.flaky], warnings },
    timingsMs: record.timingsMs,
    error: record.error,
  }
}

function baselineRemarks({ runs, flaky }: BaselineFacts, hasTestCommand: boolean): string[] {
  if (!hasTestCommand) return ['no tests configured: nothing can be said of the approaches but what they changed']
  if (runs.length === 0) return ['the baseline could not be tested']
  const remarks: string[] = []
  const [run] = runs
  if (run?.state === 'parsed') {
    const failing = run.cases.filter((test) => outcomeOf(test.status) === 'failing').length
    remarks.push(`baseline: ${failing} of ${countOf(run.cases.length, 'test')} failing`)
  }
  if (flaky.size > 0) remarks.push(`${countOf(flaky.size, 'test')} flaky in the baseline (${listSome([...flaky])})`)
  return remarks
}
