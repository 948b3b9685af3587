#!/usr/bin/env node
/**
 * Entry file of the worker process: takes trials and comparisons of this home's queue.
 *
 * It survives the daemon. Without one it finishes what it has, and ends when it has had nothing to do for a while.
 */
import { readSettings } from '../src/config/environment.js'
import { openLog } from '../src/util/log.js'
import { createWorker } from './worker.js'
import { workOnTrials } from './trials.js'
import { workOnRuns } from './compares.js'

const log = openLog('kosa8-worker')
const stop = new AbortController()
for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => stop.abort())
// The terminal the daemon was started from may close; the work goes on.
process.on('SIGHUP', () => undefined)

try {
  const worker = await createWorker(readSettings(), log, stop)
  await Promise.all([workOnTrials(worker), workOnRuns(worker)])
  await worker.close()
  process.exit(0)
} catch (error) {
  log.fatal({ err: error }, 'the worker could not run')
  process.exit(1)
}
