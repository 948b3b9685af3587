/**
 * Reads test results beside the caller's event loop, within bounds of time and memory.
 *
 * Owns: the thread and its limits. What is too costly to read becomes a failed TestRun that says so: reports are
 * written by the guest, so this is evidence about the trial and no error of ours. Called by the orchestrator.
 */
import { Worker } from 'node:worker_threads'
import type { TestRun } from '../model/tests.js'
import { judgeRun } from './judge-run.js'
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
  const worker = startWorker(evidence, heapMib)
  let timer: NodeJS.Timeout | undefined
  try {
    return await new Promise<TestRun>((resolve, reject) => {
      worker.once('message', resolve)
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

function startWorker(evidence: TestEvidence, heapMib: number): Worker {
  const options = { workerData: evidence, resourceLimits: { maxOldGenerationSizeMb: heapMib } }
  if (import.meta.url.endsWith('.js')) return new Worker(new URL('./parse-worker.js', import.meta.url), options)
  // From sources, as the tests run: a thread of Node 20 reads no TypeScript by itself.
  const jiti = JSON.stringify(import.meta.resolve('jiti'))
  const entry = JSON.stringify(new URL('./parse-worker.ts', import.meta.url).href)
  const code = `import(${jiti}).then((module) => module.createJiti(${entry}).import(${entry}))`
  return new Worker(code, { ...options, eval: true })
}

function giveUp(evidence: TestEvidence, fault: string): TestRun {
  const { exitCode, signal, timedOut, staleReports } = evidence
  const run = {
    state: 'unparsed' as const, cases: [], didNotRun: [], complete: false,
    exitCode, signal, timedOut, warnings: [fault], staleReports,
  }
  return { ...run, ...judgeRun({ ...run, faults: [fault], reportMissing: false }) }
}
