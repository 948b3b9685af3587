/**
 * What one report says, before it is joined with others into a TestRun.
 *
 * Owns: the shape every parser returns, the bounds on counts and on kept text. Names are not yet unique here.
 */
import type { TestCase, TestStatus } from '../model/tests.js'
import { cleanMessage, cleanName } from './text.js'

/** Most tests kept of one report, and of one run. */
export const CASES_MAX = 200_000
/** Most entries of files, packages or programs that did not run. */
const DID_NOT_RUN_MAX = 1000
const WARNINGS_MAX = 50
/** Failure texts beyond this many characters per report are dropped; the tests still count. */
const MESSAGES_LENGTH_MAX = 8 * 1024 * 1024

/** What a parser found in one report. */
export interface ReportParts {
  cases: TestCase[]
  didNotRun: { name: string; message: string }[]
  /** Why this is not all of it, e.g. "report cut off"; empty when the report is complete. */
  faults: string[]
  warnings: string[]
}

/** One test as a parser hands it in; texts as the guest wrote them. */
export interface FoundCase {
  name: string
  status: TestStatus
  durationMs: number | null
  message?: string | undefined
}

/** Collects {@link ReportParts} within bounds; each remark is kept once. */
export class ReportCollector {
  readonly parts: ReportParts = { cases: [], didNotRun: [], faults: [], warnings: [] }
  private messagesLength = 0

  /** Adds one test; beyond {@link CASES_MAX} the report is marked as not complete instead. */
  addCase(found: FoundCase): void {
    if (this.parts.cases.length >= CASES_MAX) return this.addFault(`more than ${CASES_MAX} tests in one report`)
    const entry: TestCase = { name: found.name, status: found.status, durationMs: found.durationMs }
    const message = this.keepMessage(found.message)
    if (message !== '') entry.message = message
    this.parts.cases.push(entry)
  }

  /** Adds a file, package or program that never got to its tests; each name once. */
  addDidNotRun(name: string, message: string): void {
    const clean = cleanName(name) || '(no name)'
    if (this.parts.didNotRun.some((entry) => entry.name === clean)) return
    if (this.parts.didNotRun.length >= DID_NOT_RUN_MAX) {
      return this.addFault(`more than ${DID_NOT_RUN_MAX} files did not run`)
    }
    this.parts.didNotRun.push({ name: clean, message: this.keepMessage(message) })
  }

  addFault(text: string): void {
    this.addOnce(this.parts.faults, text)
  }

  addWarning(text: string): void {
    this.addOnce(this.parts.warnings, text)
  }

  private addOnce(list: string[], text: string): void {
    const clean = cleanName(text)
    if (list.length < WARNINGS_MAX && !list.includes(clean)) list.push(clean)
  }

  private keepMessage(text: string | undefined): string {
    if (text === undefined || this.messagesLength > MESSAGES_LENGTH_MAX) return ''
    const clean = cleanMessage(text)
    this.messagesLength += clean.length
    return clean
  }
}
