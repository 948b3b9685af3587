/**
 * The JSON documents of jest and vitest.
 *
 * Owns: their fields. Totals in the document are not used; a file without tests that failed did not run.
 */
import type { TestStatus } from '../model/tests.js'
import { asArray, asMilliseconds, asObject, asText, type JsonObject } from './json-text.js'
import { ReportCollector, type ReportParts } from './report-parts.js'
import { joinName, relativePath } from './text.js'

const STATUS: Record<string, TestStatus> = {
  passed: 'passed', failed: 'failed', skipped: 'skipped', pending: 'skipped', disabled: 'skipped', todo: 'todo',
}

/** True for a document of jest or vitest. */
export function isJestDocument(document: JsonObject): boolean {
  return Array.isArray(document.testResults) && ('numTotalTests' in document || 'success' in document)
}

/** Reads a jest or vitest document; paths below `workspace` become relative. Never throws. */
export function parseJest(document: JsonObject, workspace: string): ReportParts {
  const collector = new ReportCollector()
  for (const entry of asArray(document.testResults)) {
    const file = asObject(entry)
    if (file !== null) readFile(collector, file, workspace)
  }
  if (document.wasInterrupted === true) collector.addFault('the test runner was interrupted')
  const { cases, didNotRun } = collector.parts
  const isExplained = didNotRun.length > 0 || cases.some((test) => test.status === 'failed')
  if (document.success === false && !isExplained && cases.length > 0) {
    collector.addWarning('the report says it was no success, although no test failed')
  }
  return collector.parts
}

function readFile(collector: ReportCollector, file: JsonObject, workspace: string): void {
  const name = relativePath(asText(file.name), workspace)
  const tests = asArray(file.assertionResults).map(asObject).filter((test) => test !== null)
  for (const test of tests) {
    const suites = asArray(test.ancestorTitles).map(asText)
    const status = Object.hasOwn(STATUS, asText(test.status)) ? STATUS[asText(test.status)] : undefined
    collector.addCase({
      name: joinName([name, ...suites, asText(test.title) || asText(test.fullName)]),
      status: status ?? 'other',
      durationMs: asMilliseconds(test.duration),
      message: asArray(test.failureMessages).map(asText).join('\n') || undefined,
    })
  }
  const hasFailure = tests.some((test) => test.status === 'failed')
  // Failed without a failed test: it could not be loaded, or broke outside of its tests.
  if (file.status === 'failed' && !hasFailure) collector.addDidNotRun(name, asText(file.message))
}
