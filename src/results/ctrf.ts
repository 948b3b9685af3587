/**
 * The Common Test Report Format.
 */
import type { TestStatus } from '../model/tests.js'
import { asArray, asMilliseconds, asObject, asText, type JsonObject } from './json-text.js'
import { ReportCollector, type ReportParts } from './report-parts.js'
import { joinName, relativePath } from './text.js'

const STATUS: Record<string, TestStatus> = {
  passed: 'passed', failed: 'failed', skipped: 'skipped', pending: 'skipped', other: 'other',
}

/** True for a CTRF document. */
export function isCtrfDocument(document: JsonObject): boolean {
  return Array.isArray(asObject(document.results)?.tests)
}

/** Reads a CTRF document; its summary is not used. Never throws. */
export function parseCtrf(document: JsonObject, workspace: string): ReportParts {
  const collector = new ReportCollector()
  for (const entry of asArray(asObject(document.results)?.tests)) {
    const test = asObject(entry)
    if (test === null) continue
    const status = Object.hasOwn(STATUS, asText(test.status)) ? STATUS[asText(test.status)] : undefined
    collector.addCase({
      name: joinName([...suitesOf(test, workspace), asText(test.name)]),
      status: status ?? 'other',
      durationMs: asMilliseconds(test.duration),
      message: [asText(test.message), asText(test.trace)].filter((part) => part !== '').join('\n') || undefined,
    })
  }
  return collector.parts
}

/** `suite` is a list in newer versions and `a > b` text in older ones; without it, the file stands for it. */
function suitesOf(test: JsonObject, workspace: string): string[] {
  if (Array.isArray(test.suite)) return test.suite.map(asText)
  if (asText(test.suite) !== '') return asText(test.suite).split(' > ')
  const file = asText(test.filePath)
  return file === '' ? [] : [relativePath(file, workspace)]
}
