/**
 * From JUnit elements to tests: one mapping for all dialects.
 *
 * Owns: what a testcase's children and attributes mean, and which entries are not tests but files or programs
 * that never got to their tests. Fed element by element by `junit.ts`.
 */
import type { TestStatus } from '../model/tests.js'
import type { ReportCollector } from './report-parts.js'
import { cleanName, joinName } from './text.js'

export type JunitAttributes = Record<string, string>

interface OpenSuite {
  name: string
  /** Totals as the writer claims them; compared, never added. */
  claimedTests: number | null
  claimsProblems: boolean
  ownCases: number
  allCases: number
  allDidNotRun: number
}

interface OpenCase {
  attributes: JunitAttributes
  outcomes: Map<'failure' | 'error' | 'skipped' | 'warning', string>
  openMessage: string
}

const NOT_RUN = new Set(['notrun', 'disabled', 'skipped', 'ignored', 'pending', 'suppressed', 'inconclusive'])
const FAILED = new Set(['fail', 'failed', 'failure'])
const ERRORED = new Set(['error', 'errored', 'broken'])

/** Turns a sequence of opened and closed elements into tests. */
export class JunitCases {
  private readonly suites: OpenSuite[] = []
  private current: OpenCase | null = null
  private unknownTimes = 0

  constructor(
    private readonly collector: ReportCollector,
    private readonly parseTime: (text: string | undefined) => number | null,
  ) {}

  open(element: string, attributes: JunitAttributes): void {
    if (element === 'testsuite' || element === 'testsuites') this.suites.push(openSuite(attributes))
    else if (element === 'testcase') this.current = { attributes, outcomes: new Map(), openMessage: '' }
    else if (isOutcome(element)) this.openOutcome(element, attributes)
  }

  close(element: string, text: string): void {
    if (element === 'testsuite' || element === 'testsuites') this.closeSuite()
    else if (element === 'testcase') this.closeCase()
    else if (isOutcome(element)) this.closeOutcome(element, text)
  }

  /** An element that was never closed, in a repaired report: a test that was only begun does not count. */
  abandon(element: string): void {
    if (element === 'testcase' && this.current !== null) {
      this.current = null
      this.collector.addFault('a test in the report has no end')
    } else if (element === 'testsuite' || element === 'testsuites') this.closeSuite()
  }

  /** The report has ended, perhaps too early. */
  end(): void {
    if (this.unknownTimes > 0) this.collector.addWarning(`${this.unknownTimes} times in the report could not be read`)
  }

  private openOutcome(element: OutcomeElement, attributes: JunitAttributes): void {
    if (this.current !== null) this.current.openMessage = attributes.message ?? attributes.type ?? ''
  }

  private closeOutcome(element: OutcomeElement, text: string): void {
    if (this.current !== null) {
      const message = [this.current.openMessage, text].filter((part) => part.trim() !== '').join('\n')
      if (!this.current.outcomes.has(element)) this.current.outcomes.set(element, message)
      return
    }
    // An error of a suite itself: its tests never ran.
    const suite = this.suites.at(-1)
    if (suite === undefined || (element !== 'error' && element !== 'failure')) return
    this.addDidNotRun(suite.name, text)
  }

  private closeCase(): void {
    const found = this.current
    this.current = null
    if (found === null) return
    this.countCase()
    const suite = this.suites.at(-1)
    const name = found.attributes.name ?? ''
    const message = found.outcomes.get('error') ?? found.outcomes.get('failure')
      ?? found.outcomes.get('warning') ?? found.outcomes.get('skipped')
    const broken = brokenFile(found, suite?.name ?? '')
    if (broken === 'file') return this.addDidNotRun(name || (suite?.name ?? ''), message ?? '')
    if (broken === 'program') this.addDidNotRun(name, message ?? '')
    this.collector.addCase({
      name: joinName([...this.containerOf(found.attributes), name]),
      status: broken === 'program' ? 'other' : statusOf(found),
      durationMs: this.readTime(found.attributes.time),
      message,
    })
  }

  private readTime(text: string | undefined): number | null {
    const milliseconds = this.parseTime(text)
    if (milliseconds === null && text !== undefined && text.trim() !== '') this.unknownTimes += 1
    return milliseconds
  }

  /** The class where the writer names one; else the suites around. Node writes "test" as every class. */
  private containerOf(attributes: JunitAttributes): string[] {
    const className = (attributes.classname ?? '').trim()
    const isTelling = className !== '' && className !== 'test' && className !== attributes.name?.trim()
    return isTelling ? [className] : this.suites.map((suite) => suite.name)
  }

  private countCase(): void {
    const own = this.suites.at(-1)
    if (own !== undefined) own.ownCases += 1
    for (const suite of this.suites) suite.allCases += 1
  }

  private addDidNotRun(name: string, message: string): void {
    for (const suite of this.suites) suite.allDidNotRun += 1
    this.collector.addDidNotRun(name, message)
  }

  private closeSuite(): void {
    const suite = this.suites.at(-1)
    if (suite === undefined) return
    if (suite.allCases === 0 && suite.allDidNotRun === 0 && suite.claimsProblems) {
      this.addDidNotRun(suite.name || 'suite without name', 'the suite reports an error and has no test')
    }
    this.suites.pop()
    const { claimedTests: claimed, ownCases, allCases, allDidNotRun } = suite
    if (claimed === null || [ownCases, allCases, allCases - allDidNotRun].includes(claimed)) return
    const name = cleanName(suite.name) || 'without name'
    this.collector.addWarning(`totals disagree: suite ${name} claims ${claimed} tests, ${allCases} are there`)
  }
}

type OutcomeElement = 'failure' | 'error' | 'skipped' | 'warning'

function isOutcome(element: string): element is OutcomeElement {
  return element === 'failure' || element === 'error' || element === 'skipped' || element === 'warning'
}

function openSuite(attributes: JunitAttributes): OpenSuite {
  const claimed = /^\d{1,9}$/.test(attributes.tests ?? '') ? Number(attributes.tests) : null
  const claimsProblems = [attributes.errors, attributes.failures].some((count) => /^[1-9]\d*$/.test(count ?? ''))
  const name = (attributes.name ?? '').trim()
  return { name, claimedTests: claimed, claimsProblems, ownCases: 0, allCases: 0, allDidNotRun: 0 }
}

function statusOf({ attributes, outcomes }: OpenCase): TestStatus {
  if (outcomes.has('error')) return 'errored'
  if (outcomes.has('failure')) return 'failed'
  if (outcomes.has('skipped')) return 'skipped'
  if (outcomes.has('warning')) return 'other'
  const words = [attributes.status, attributes.result].map((word) => (word ?? '').toLowerCase())
  if (words.some((word) => NOT_RUN.has(word))) return 'skipped'
  if (words.some((word) => ERRORED.has(word))) return 'errored'
  return words.some((word) => FAILED.has(word)) ? 'failed' : 'passed'
}

/**
 * What is written as a test but is none. `file`: a test file that could not be loaded (jest-junit, vitest,
 * pytest). `program`: a test of ctest whose program is missing; it keeps its place among the tests.
 */
function brokenFile({ attributes, outcomes }: OpenCase, suite: string): 'file' | 'program' | null {
  const problem = outcomes.get('error') ?? outcomes.get('failure')
  if (problem === undefined) return null
  if ((attributes.status ?? '').toLowerCase() === 'notrun') return 'program'
  const { name = '', classname = '' } = attributes
  if (classname === 'Test suite failed to run' || problem.startsWith('collection failure')) return 'file'
  return name !== '' && name === suite && /\.[cm]?[jt]sx?$/.test(name) ? 'file' : null
}
