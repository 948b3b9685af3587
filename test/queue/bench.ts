/** What the queue tests work with: a real redis-server of our own, a real store, quick locks. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { createRunId, trialIdOf, type RunId } from '../../src/model/ids.js'
import { openRunQueue, type RunQueueConfig } from '../../src/queue/bullmq-queue.js'
import type { ClaimedTrial, QueuedTrial, RunQueue } from '../../src/queue/queue.js'
import { startRedis, stopRedis, type RedisServer, type RedisServerConfig } from '../../src/queue/redis-server.js'
import { createPaths, preparePaths } from '../../src/store/paths.js'
import { RunStore } from '../../src/store/run-store.js'

export const LOCK_DURATION_MS = 2000

/** One state home with its Redis. */
export class QueueBench {
  readonly queues: RunQueue[] = []

  private constructor(
    readonly home: string, readonly server: RedisServerConfig, readonly store: RunStore, public redis: RedisServer,
  ) {}

  static async open(persistence: 'yes' | 'no' = 'yes'): Promise<QueueBench> {
    const home = await mkdtemp(path.join(tmpdir(), 'kosa8-queue-'))
    const paths = createPaths(home)
    await preparePaths(paths)
    const server = { directory: paths.redis, socketPath: paths.redisSocket, persistence }
    return new QueueBench(home, server, new RunStore(paths), await startRedis(server))
  }

  async queue(change: Partial<RunQueueConfig> = {}): Promise<RunQueue> {
    const queue = await openRunQueue(queueConfig(this.server.socketPath, this.store, change))
    this.queues.push(queue)
    return queue
  }

  /** A run in the store, with trials to be queued. */
  async run(trialCount: number): Promise<{ run: RunId; trials: QueuedTrial[] }> {
    const run = createRunId(Date.now())
    await this.store.createRun({ id: run, createdAt: new Date().toISOString(), repository: null, labels: ['a'] })
    return { run, trials: trialsOf(run, trialCount) }
  }

  async killRedis(): Promise<void> {
    process.kill(this.redis.process.pid, 'SIGKILL')
  }

  async startRedisAgain(): Promise<void> {
    this.redis = await startRedis(this.server)
  }

  async close(): Promise<void> {
    await Promise.all(this.queues.map((queue) => queue.close()))
    await stopRedis(this.server)
    await rm(this.home, { recursive: true, force: true })
  }
}

export function queueConfig(socketPath: string, store: RunStore, change: Partial<RunQueueConfig> = {}): RunQueueConfig {
  return {
    address: { socketPath }, journal: store, prefix: 'test', lockDurationMs: LOCK_DURATION_MS, stalledIntervalMs: 200, answerTimeoutMs: 2000, ...change,
  }
}

export function trialsOf(run: RunId, count: number): QueuedTrial[] {
  return Array.from({ length: count }, (_, index) => ({
    trial: trialIdOf(run, 'a@k=x:1', index + 1), label: 'a@k=x:1', repeat: index + 1, isBaseline: index === 0,
  }))
}

/** Waits for work and claims it, like a worker does; null when the time is up. */
export async function claimSoon(queue: RunQueue, timeoutMs = 15_000): Promise<ClaimedTrial | null> {
  const signal = AbortSignal.timeout(timeoutMs)
  while (!signal.aborted) {
    const claim = await queue.claimTrial('test')
    if (claim !== null) return claim
    await queue.waitForWork(signal)
  }
  return null
}

export function whenLost(claim: { lost: AbortSignal }): Promise<void> {
  return new Promise((resolve) => {
    if (claim.lost.aborted) resolve()
    else claim.lost.addEventListener('abort', () => resolve(), { once: true })
  })
}
