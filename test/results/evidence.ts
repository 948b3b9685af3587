/** Builds what a test command leaves behind, for tests of `results`. */
import { readFileSync } from 'node:fs'
import type { TestRun } from '../../src/model/tests.js'
import { readTestRun, type TestEvidence } from '../../src/results/read-test-run.js'

const encoder = new TextEncoder()

export function bytes(text: string): Uint8Array {
  return encoder.encode(text)
}

/** Evidence of a run that wrote nothing and ended with 0, changed as told. */
export function evidence(changes: Partial<TestEvidence> = {}): TestEvidence {
  return {
    files: [], stdout: bytes(''), exitCode: 0, signal: null, timedOut: false, staleReports: [], workspace: '/workspace', ...changes,
  }
}

/** Reads one report file with this text. */
export function readText(text: string, changes: Partial<TestEvidence> = {}): TestRun {
  return readTestRun(evidence({ files: [{ path: 'report', content: bytes(text) }], ...changes }))
}

/** Reads a report of test/fixtures/results. */
export function readFixture(name: string, changes: Partial<TestEvidence> = {}): TestRun {
  const content = readFileSync(new URL(`../fixtures/results/${name}`, import.meta.url))
  return readTestRun(evidence({ files: [{ path: name, content }], ...changes }))
}

/** `name: status` of every test, in order. */
export function statuses(run: TestRun): Record<string, string> {
  return Object.fromEntries(run.cases.map((test) => [test.name, test.status]))
}
