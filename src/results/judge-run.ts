/**
 * The verdict on one run of the tests: passed only on evidence.
 *
 * Owns: the rules and the sentence that names the reason. Pure. Called by `read-test-run.ts`.
 */
import type { TestRun } from '../model/tests.js'

/** Everything about a run but the judgement. */
export interface RunEvidence extends Omit<TestRun, 'verdict' | 'reason'> {
  /** Why reports are only part of the truth. */
  faults: string[]
  /** True when reports were asked for or old ones lay there, and the run wrote none. */
  reportMissing: boolean
}

/**
 * passed: at least one test, nothing failed, everything read, exit status 0. noTests: exit status 0 and nothing ran.
 * failed: everything else; `reason` joins all that speaks against it.
 */
export function judgeRun(run: RunEvidence): Pick<TestRun, 'verdict' | 'reason'> {
  const endedWell = run.exitCode === 0 && run.signal === null && !run.timedOut
  if (endedWell && run.cases.length === 0 && run.didNotRun.length === 0 && run.faults.length === 0) {
    return { verdict: 'noTests', reason: reasonForNoTests(run) }
  }
  const objections = [...objectionsToEnd(run), ...objectionsToReports(run)]
  const reason = objections.length === 0 ? null : objections.join('; ')
  return { verdict: reason === null ? 'passed' : 'failed', reason }
}

function reasonForNoTests(run: RunEvidence): string {
  if (run.reportMissing) return 'no tests ran: no report written by this run'
  if (run.state === 'unparsed') return 'no tests ran that could be read: exit status 0 alone says nothing of tests'
  return 'no tests ran'
}

function objectionsToEnd(run: RunEvidence): string[] {
  if (run.timedOut) return ['the tests did not end in time']
  const signal = signalOf(run)
  if (signal !== null) return [`killed by signal ${signal}`]
  if (run.exitCode === null) return ['the test command did not end by itself']
  if (run.exitCode === 0) return []
  return [`exit status ${run.exitCode}`]
}

/** The signal that ended a run, also when a shell reported it as 128 + n; null when none did. */
export function signalOf(run: Pick<TestRun, 'exitCode' | 'signal'>): number | null {
  if (run.signal !== null) return run.signal
  const { exitCode } = run
  return exitCode !== null && exitCode > 128 && exitCode <= 128 + 64 ? exitCode - 128 : null
}

function objectionsToReports(run: RunEvidence): string[] {
  const objections = [...run.faults]
  if (run.reportMissing) objections.push('no report written by this run')
  const [broken] = run.didNotRun
  if (broken !== undefined) {
    const which = run.didNotRun.length === 1 ? broken.name : `${run.didNotRun.length} files`
    objections.push(`${which} did not run`)
  }
  const failed = run.cases.filter((test) => test.status === 'failed' || test.status === 'errored').length
  if (failed > 0) objections.push(`${failed} of ${run.cases.length} tests failed`)
  if (run.cases.length === 0 && objections.length === 0) objections.push('no tests ran')
  return objections
}
