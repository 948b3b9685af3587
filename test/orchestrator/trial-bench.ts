/**
 * Trial workers on a real queue and a real store, over machines that are fakes, with memory for everybody.
 *
 * The trials here are baselines without a test command: a clone, its identity and a record.
 */
import { onTestFinished } from 'vitest'
import type { MachineSnapshot } from '../../src/hypervisor/driver.js'
import { NO_PROXIES } from '../../src/model/egress.js'
import { BASELINE_LABEL, trialIdOf, type RunId } from '../../src/model/ids.js'
import type { RunPlan } from '../../src/model/run.js'
import type { Reservations } from '../../src/orchestrator/reservations.js'
import { TrialWorker, type TrialWorkerParts } from '../../src/orchestrator/trial-worker.js'
import type { QueuedTrial } from '../../src/queue/queue.js'
import { FakeHost } from '../helpers/fake-host.js'
import { QueueBench } from '../queue/bench.js'
import { aPlan } from '../store/records.js'

/** Memory that is always there. */
export const PLENTY: Reservations = {
  acquire: async () => ({ bytes: 1, withdrawn: new AbortController().signal, reportPeak: () => undefined, release: () => undefined }),
}

/** One state home: queue, store, fake machines. */
export class TrialBench {
  readonly errors: string[] = []
  private workers = 0

  private constructor(readonly queues: QueueBench, readonly home: FakeHost, readonly snapshot: MachineSnapshot) {}

  static async open(): Promise<TrialBench> {
    const queues = await QueueBench.open()
    const home = await FakeHost.open(queues.home)
    return new TrialBench(queues, home, await home.snapshot())
  }

  async close(): Promise<void> {
    await this.queues.close()
    await this.home.close()
  }

  /** A stored and queued run of these many trials. */
  async enqueue(count: number, change: Partial<RunPlan> = {}): Promise<{ run: RunId; trials: QueuedTrial[] }> {
    const { run } = await this.queues.run(0)
    const trials = Array.from({ length: count }, (_, index) => ({
      trial: trialIdOf(run, BASELINE_LABEL, index + 1), label: BASELINE_LABEL, repeat: index + 1, isBaseline: true,
    }))
    await this.queues.store.storePlan({ ...aPlan(run), repeats: count, ...change })
    await (await this.queues.queue()).enqueueRun(run, trials)
    return { run, trials }
  }

  /** A worker that is at work until the test ends. */
  async work(change: Partial<TrialWorkerParts> = {}): Promise<{ name: string; stop: () => Promise<void> }> {
    this.workers += 1
    const name = `worker-${this.workers}`
    const stop = new AbortController()
    const worker = new TrialWorker({
      queue: await this.queues.queue({ waitMaxMs: 200 }), runs: this.queues.store, paths: this.home.paths, host: this.home.host, hostProxies: NO_PROXIES,
      reservations: PLENTY, loadSnapshot: async () => this.snapshot, keepClone: async () => undefined, name, processorsMax: 1000,
      onError: (message) => this.errors.push(message), ...change,
    })
    const working = worker.work(stop.signal)
    const end = async (): Promise<void> => {
      stop.abort()
      await working
    }
    onTestFinished(end)
    return { name, stop: end }
  }

  /** The records of a run once there are this many. */
  async records(run: RunId, count: number): Promise<Awaited<ReturnType<typeof this.queues.store.readTrialRecords>>> {
    for await (const event of this.queues.store.followEvents(run, 0, AbortSignal.timeout(60_000))) {
      if (event.type !== 'trial-end') continue
      const records = await this.queues.store.readTrialRecords(run)
      if (records.length >= count) return records
    }
    throw new Error(`no ${count} records: ${this.errors.join('; ')}`)
  }
}
