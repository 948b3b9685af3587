/**
 * Reads test results beside the caller's event loop, within bounds of time and memory.
 *
 * Owns: the thread and its limits. What is too costly to read becomes a failed TestRun that says so: reports are
 * written by the guest, so this is evidence about the trial and no error of ours. Called by the orchestrator.
 */
import type { TestCase, TestRun } from '../model/tests.js'
import { startThread } from '../util/thread.js'
import { judgeRun } from './judge-run.js'
import type { ParseMessage } from './parse-worker.js'
import { readTestRun, type TestEvidence } from './read-test-run.js'

/** Below this many bytes in all, reading takes a few milliseconds and is done in place. */
const IN_PLACE_BYTES_MAX = 64 * 1024

/** Bounds of one reading. */
export interface ParseLimits {
  /** Milliseconds; default one minute. */
  timeoutMs?: number
  /** Mebibytes of heap; default 1024. */
  heapMib?: number
}

/** Like `readTestRun`, in a thread of its own when there is much to read. Never rejects on what the guest wrote. */
export async function parseInThread(evidence: TestEvidence, limits: ParseLimits = {}): Promise<TestRun> {
  const sizeBytes = evidence.files.reduce((sum, file) => sum + file.content.length, evidence.stdout.length)
  if (sizeBytes <= IN_PLACE_BYTES_MAX) return readTestRun(evidence)
  const { timeoutMs = 60_000, heapMib = 1024 } = limits
  const worker = startThread(new URL('./parse-worker', import.meta.url), {
    workerData: evidence, resourceLimits: { maxOldGenerationSizeMb: heapMib },
  })
  let timer: NodeJS.Timeout | undefined
  try {
    return await new Promise<TestRun>((resolve, reject) => {
      const cases: TestCase[] = []
      worker.on('message', (message: ParseMessage) => {
        if ('run' in message) return resolve({ ...message.run, cases })
        for (const test of message.cases) cases.push(test)
        worker.postMessage('next')
      })
      worker.once('error', (error: NodeJS.ErrnoException) => {
        if (error.code !== 'ERR_WORKER_OUT_OF_MEMORY') return reject(error)
        resolve(giveUp(evidence, `reports not readable within ${heapMib} MiB`))
      })
      worker.once('exit', () => reject(new Error('the thread that reads test results ended without an answer')))
      timer = setTimeout(() => resolve(giveUp(evidence, `reports not readable within ${timeoutMs} ms`)), timeoutMs)
    })
  } finally {
    clearTimeout(timer)
    await worker.terminate()
  }
}

function giveUp(evidence: TestEvidence, fault: string): TestRun {
  const { exitCode, signal, timedOut, staleReports } = evidence
  const run = {
    state: 'unparsed' as const, cases: [], didNotRun: [], complete: false,
    exitCode, signal, timedOut, warnings: [fault], staleReports,
  }
  return { ...run, ...judgeRun({ ...run, faults: [fault], reportMissing: false }) }
}
