/**
 * Entry of the thread that reads test results, started by `parse-in-thread.ts`. The tests go back in batches, each
 * asked for: one message with all of them would keep the receiver's event loop from everything else.
 */
import { parentPort, workerData } from 'node:worker_threads'
import type { TestCase, TestRun } from '../model/tests.js'
import { readTestRun, type TestEvidence } from './read-test-run.js'

/** What the thread sends: tests, then the run they belong to, with none in it. */
export type ParseMessage = { cases: TestCase[] } | { run: TestRun }

const BATCH_CASES = 2_000

const { cases, ...run } = readTestRun(workerData as TestEvidence)
let sent = 0

function sendNext(): void {
  const batch = cases.slice(sent, sent + BATCH_CASES)
  sent += batch.length
  const message: ParseMessage = batch.length > 0 ? { cases: batch } : { run: { ...run, cases: [] } }
  parentPort?.postMessage(message)
}

parentPort?.on('message', sendNext)
sendNext()
