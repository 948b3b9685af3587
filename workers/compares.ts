/** The queue of comparisons: wires the compare worker to this process's parts. */
import { workOnCompares } from '../src/orchestrator/compare-worker.js'
import { systemClock } from '../src/util/clock.js'
import type { Worker } from './worker.js'

/** Compares runs until the worker is told to end. */
export async function workOnRuns(worker: Worker): Promise<void> {
  await workOnCompares({
    queue: worker.queue, runs: worker.runs, paths: worker.paths, clock: systemClock, name: worker.name,
    onError: (message, error) => worker.log.error({ err: error }, message),
  }, worker.signal)
}
