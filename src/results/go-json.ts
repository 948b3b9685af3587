/**
 * The event stream of `go test -json`, of old and new toolchains.
 *
 * Owns: which events are tests. A package that does not compile or load did not run, whether the toolchain says
 * so by build events or by plain lines between the events. A test with subtests counts only when it failed
 * although none of them did.
 */
import type { TestStatus } from '../model/tests.js'
import { asText, parseJsonObject, type JsonObject } from './json-text.js'
import { ReportCollector, type ReportParts } from './report-parts.js'
import { joinName } from './text.js'

const ENDINGS: Record<string, TestStatus> = { pass: 'passed', fail: 'failed', skip: 'skipped' }
const ACTION = /^\{[^\n]{0,4000}"Action"\s*:\s*"(?:start|run|pass|fail|skip|output|build-output|build-fail)"/m
const BROKEN_LINE = /^FAIL\s+(\S+) \[(?:build|setup) failed\]/
/** Kept of the output of one test or one package. */
const OUTPUT_LENGTH_MAX = 8000

interface GoTest {
  package: string
  test: string
  status: TestStatus | null
  seconds: number | null
  output: string
}

/** True when the text holds at least one event of `go test -json`. */
export function isGoJson(text: string): boolean {
  const start = text.search(/^\{"(?:Time|Action|ImportPath)"\s*:/m)
  if (start === -1) return false
  return ACTION.test(text.slice(start, start + 65_536))
}

/** Reads a stream of `go test -json`. Never throws. */
export function parseGoJson(text: string): ReportParts {
  const reading = new GoReading()
  for (const line of text.split('\n')) reading.line(line)
  return reading.end()
}

class GoReading {
  private readonly collector = new ReportCollector()
  private readonly tests: GoTest[] = []
  /** The running or last execution of each test. */
  private readonly latest = new Map<string, GoTest>()
  /** Compiler text by package, as `# package` sections or build events give it. */
  private readonly buildOutput = new Map<string, string>()
  private readonly packageOutput = new Map<string, string>()
  private section: string | null = null
  private looseText = ''
  private readonly failedPackages: string[] = []

  line(line: string): void {
    const event = line.startsWith('{') ? parseJsonObject(line) : null
    if (event !== null && typeof event.Action === 'string') this.event(event.Action, event)
    else if (line.startsWith('{"') && event === null) this.collector.addFault('report cut off')
    else this.plainLine(line)
  }

  end(): ReportParts {
    for (const name of this.failedPackages) this.explainFailure(name)
    const open = this.tests.filter((test) => test.status === null)
    if (open.length > 0) this.collector.addFault(`report cut off: ${open.length} tests have no end`)
    const parents = this.parentsOf()
    for (const found of this.tests) {
      if (found.status === null || parents.get(found) === 'hidden') continue
      this.collector.addCase({
        name: joinName([found.package, found.test]),
        status: found.status,
        durationMs: found.seconds === null ? null : Math.round(found.seconds * 1e6) / 1e3,
        message: found.status === 'failed' || found.status === 'skipped' ? found.output : undefined,
      })
    }
    return this.collector.parts
  }

  private event(action: string, event: JsonObject): void {
    const packageName = asText(event.Package)
    if (action === 'build-output') {
      return append(this.buildOutput, plainPackage(asText(event.ImportPath)), asText(event.Output))
    }
    if (action === 'build-fail' || packageName === '') return
    if (asText(event.Test) !== '') return this.testEvent(action, packageName, event)
    if (action === 'output') {
      append(this.packageOutput, packageName, asText(event.Output))
      this.markBroken(asText(event.Output))
    } else if (action === 'fail') this.failPackage(packageName, asText(event.FailedBuild))
  }

  private testEvent(action: string, packageName: string, event: JsonObject): void {
    const key = `${packageName}\n${asText(event.Test)}`
    let current = this.latest.get(key)
    if (current === undefined || (action === 'run' && current.status !== null)) {
      current = { package: packageName, test: asText(event.Test), status: null, seconds: null, output: '' }
      this.latest.set(key, current)
      this.tests.push(current)
    }
    if (action === 'output' && current.output.length < OUTPUT_LENGTH_MAX) current.output += asText(event.Output)
    const status = Object.hasOwn(ENDINGS, action) ? ENDINGS[action] : undefined
    if (status === undefined) return
    current.status = status
    current.seconds = typeof event.Elapsed === 'number' && event.Elapsed >= 0 ? event.Elapsed : null
  }

  private plainLine(line: string): void {
    const heading = /^# (\S+)/.exec(line)
    if (heading !== null) this.section = plainPackage(heading[1] ?? '')
    else if (BROKEN_LINE.test(line)) this.markBroken(line)
    else if (this.section !== null) append(this.buildOutput, this.section, `${line}\n`)
    else if (this.looseText.length < OUTPUT_LENGTH_MAX) this.looseText += `${line}\n`
  }

  private markBroken(line: string): void {
    const name = BROKEN_LINE.exec(line)?.[1]
    if (name !== undefined) this.failPackage(name, name)
  }

  private failPackage(name: string, failedBuild: string): void {
    if (failedBuild !== '') {
      const text = this.buildOutput.get(plainPackage(failedBuild)) ?? this.buildOutput.get(name) ?? this.looseText
      this.collector.addDidNotRun(name, text)
    } else if (this.failedPackages.length < 1000 && !this.failedPackages.includes(name)) {
      this.failedPackages.push(name)
    }
  }

  /** A package failed: its open tests failed with it; without any test it did not run. */
  private explainFailure(name: string): void {
    const tests = this.tests.filter((test) => test.package === name)
    for (const test of tests) test.status ??= 'failed'
    if (tests.length === 0) this.collector.addDidNotRun(name, this.packageOutput.get(name) ?? this.looseText)
    else if (!tests.some((test) => test.status === 'failed')) {
      this.collector.addWarning(`package ${name} failed although none of its tests did`)
    }
  }

  /** Tests that have subtests, and whether they add anything to them. */
  private parentsOf(): Map<GoTest, 'hidden' | 'kept'> {
    const childFailed = new Map<string, boolean>()
    for (const test of this.tests) {
      for (let slash = test.test.lastIndexOf('/'); slash > 0; slash = test.test.lastIndexOf('/', slash - 1)) {
        const key = `${test.package}\n${test.test.slice(0, slash)}`
        childFailed.set(key, (childFailed.get(key) ?? false) || test.status === 'failed')
      }
    }
    const parents = new Map<GoTest, 'hidden' | 'kept'>()
    for (const test of this.tests) {
      const failed = childFailed.get(`${test.package}\n${test.test}`)
      if (failed !== undefined) parents.set(test, test.status === 'failed' && !failed ? 'kept' : 'hidden')
    }
    return parents
  }
}

/** `shop/pay [shop/pay.test]` and `shop/pay.test` are builds of shop/pay. */
function plainPackage(importPath: string): string {
  return importPath.replace(/ \[.*$/, '').replace(/\.test$/, '')
}

function append(map: Map<string, string>, key: string, text: string): void {
  const former = map.get(key) ?? ''
  if (former.length < OUTPUT_LENGTH_MAX) map.set(key, former + text.slice(0, OUTPUT_LENGTH_MAX))
}
