/**
 * From what a test command left behind to one TestRun.
 *
 * Owns: joining reports, unique names, which source counts. Pure: bytes in, plain data out. Callers: the
 * orchestrator through `parse-in-thread.ts`, tests directly. Inputs are hostile; nothing here throws on them.
 */
import { createHash } from 'node:crypto'
import type { TestCase, TestRun } from '../model/tests.js'
import { judgeRun } from './judge-run.js'
import { readReport, readStandardOutput } from './read-report.js'
import { CASES_MAX, type ReportParts } from './report-parts.js'
import { cleanName } from './text.js'

/** What a test command left behind. */
export interface TestEvidence {
  /** Report files this run wrote; `path` relative to the workspace. */
  files: { path: string; content: Uint8Array }[]
  stdout: Uint8Array
  exitCode: number | null
  /** Signal that ended the command, if one did. */
  signal: number | null
  timedOut: boolean
  /** Report files that lay there before this run and were put aside. */
  staleReports: string[]
  /** Absolute path of the repository in the guest. */
  workspace: string
  /** True when globs of report files were configured; without it, standard output alone was expected. */
  resultsConfigured?: boolean
  /** Why some report files could not be fetched, one sentence each: what they said is unknown. */
  unreadReports?: string[]
}

interface Joined {
  cases: TestCase[]
  didNotRun: { name: string; message: string }[]
  faults: string[]
  warnings: string[]
  /** True when at least one source could be read as a report. */
  isParsed: boolean
}

const WARNINGS_MAX = 100

/** Reads all results of one run. Report files come first; standard output counts only without them. */
export function readTestRun(evidence: TestEvidence): TestRun {
  const joined = evidence.files.length > 0 ? readFiles(evidence) : readOutput(evidence)
  for (const sentence of evidence.unreadReports ?? []) joined.faults.push(cleanName(sentence))
  const staleReports = evidence.staleReports.map(cleanName)
  const rewritten = new Set(evidence.files.map((file) => file.path))
  for (const stale of evidence.staleReports) {
    if (!rewritten.has(stale)) joined.warnings.push(`${cleanName(stale)} is from before this run and was not read`)
  }
  const isExpected = evidence.resultsConfigured ?? evidence.staleReports.length > 0
  const run = {
    state: joined.isParsed ? 'parsed' as const : 'unparsed' as const,
    cases: makeNamesUnique(joined.cases),
    didNotRun: joined.didNotRun,
    complete: joined.faults.length === 0,
    exitCode: evidence.exitCode,
    signal: evidence.signal,
    timedOut: evidence.timedOut,
    warnings: joined.warnings.slice(0, WARNINGS_MAX),
    staleReports,
  }
  const reportMissing = evidence.files.length === 0 && !joined.isParsed && isExpected
  return { ...run, ...judgeRun({ ...run, faults: joined.faults, reportMissing }) }
}

/** The TestRun of a trial that has no test command. */
export function createEmptyTestRun(): TestRun {
  return {
    state: 'none', verdict: 'noTests', reason: 'no tests configured', cases: [], didNotRun: [], complete: true,
    exitCode: null, signal: null, timedOut: false, warnings: [], staleReports: [],
  }
}

function readOutput({ stdout, workspace }: TestEvidence): Joined {
  const parts = readStandardOutput(stdout, workspace)
  if (parts === null) return { cases: [], didNotRun: [], faults: [], warnings: [], isParsed: false }
  return { ...parts, isParsed: true }
}

function readFiles({ files, workspace }: TestEvidence): Joined {
  const joined: Joined = { cases: [], didNotRun: [], faults: [], warnings: [], isParsed: true }
  const empty: string[] = []
  const seen = new Map<string, string>()
  for (const file of [...files].sort((a, b) => compareText(a.path, b.path))) {
    const name = cleanName(file.path)
    const digest = createHash('sha256').update(file.content).digest('hex')
    const twin = seen.get(digest)
    if (twin === undefined) seen.set(digest, name)
    const report = readReport(file.content, workspace)
    if (report === 'empty') empty.push(name)
    else if (twin !== undefined) joined.warnings.push(`${name} is the same as ${twin} and was read once`)
    else addReport(joined, name, report, files.length > 1)
  }
  for (const name of empty) {
    joined.warnings.push(`${name} is empty`)
    // Alone it means that nothing ran; beside others it means that a part of the results is lost.
    if (empty.length < files.length) joined.faults.push(`${name} is empty`)
  }
  return joined
}

function addReport(joined: Joined, name: string, report: ReportParts, isOneOfMany: boolean): void {
  for (const test of report.cases) {
    if (joined.cases.length < CASES_MAX) joined.cases.push(test)
    else if (joined.faults.at(-1) !== tooMany) joined.faults.push(tooMany)
  }
  for (const entry of report.didNotRun) joined.didNotRun.push(entry)
  const prefix = isOneOfMany ? `${name}: ` : ''
  for (const fault of report.faults) joined.faults.push(`${prefix}${fault}`)
  for (const warning of [...report.warnings, ...report.faults]) joined.warnings.push(`${name}: ${warning}`)
  const isWithoutTests = report.cases.length + report.didNotRun.length + report.faults.length === 0
  if (isWithoutTests) joined.warnings.push(`${name}: no test in it`)
}

const tooMany = `more than ${CASES_MAX} tests in one run`

/** The second test of a name in one run becomes `name #2`, and so on, in the order of the reports. */
function makeNamesUnique(cases: TestCase[]): TestCase[] {
  const taken = new Set(cases.map((test) => test.name))
  const counts = new Map<string, number>()
  return cases.map((test) => {
    let count = (counts.get(test.name) ?? 0) + 1
    if (count > 1) while (taken.has(`${test.name} #${count}`)) count += 1
    counts.set(test.name, count)
    if (count === 1) return test
    taken.add(`${test.name} #${count}`)
    return { ...test, name: `${test.name} #${count}` }
  })
}

function compareText(a: string, b: string): number {
  if (a === b) return 0
  return a < b ? -1 : 1
}
