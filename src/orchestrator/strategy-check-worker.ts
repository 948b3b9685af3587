/**
 * Entry of the thread that loads strategy modules to have their parameters checked: approaches in, the first
 * refusal or null out. Started by `strategy-check.ts`.
 */
import { parentPort, workerData } from 'node:worker_threads'
import { serialiseError } from '../errors/kosa8-error.js'
import type { ApproachPlan } from '../model/run.js'
import { checkParameters, loadStrategy } from './strategy-loader.js'

async function check(approaches: readonly ApproachPlan[]): Promise<void> {
  for (const approach of approaches) checkParameters(await loadStrategy(approach.strategy), approach)
}

await check(workerData as ApproachPlan[]).then(
  () => parentPort?.postMessage(null), (error: unknown) => parentPort?.postMessage(serialiseError(error)))
