/** The queue of trials: wires the trial worker to this process's parts. */
import { availableParallelism } from 'node:os'
import { snapshotOf } from '../src/checkpoint/manifest.js'
import type { CheckpointId, SandboxName } from '../src/model/ids.js'
import { keepClone } from '../src/orchestrator/keep-clone.js'
import { TrialWorker } from '../src/orchestrator/trial-worker.js'
import type { Worker } from './worker.js'

/** Trials wait for disks and networks too; with more of them at once each takes so long that time limits strike. */
const TRIALS_PER_PROCESSOR = 2

/** Runs trials until the worker is told to end. */
export async function workOnTrials(worker: Worker): Promise<void> {
  const { catalog } = worker
  const trials = new TrialWorker({
    queue: worker.queue, runs: worker.runs, paths: worker.paths, host: worker.host, hostProxies: worker.hostProxies,
    reservations: worker.reservations, name: worker.name,
    loadSnapshot: async (plan) => snapshotOf(await catalog.load(plan.sandbox as SandboxName, plan.checkpoint.id as CheckpointId), catalog),
    processorsMax: TRIALS_PER_PROCESSOR * availableParallelism(),
    keepClone: (plan, sandbox, record) => keepClone(catalog, plan, sandbox, record),
    onError: (message, error) => worker.log.error({ err: error }, message),
  })
  worker.isWorking = () => trials.activeCount > 0
  await trials.work(worker.signal)
}
