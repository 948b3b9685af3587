/**
 * The queue of runs over BullMQ.
 *
 * Owns: how our verbs become flows, locks and states. A run is one flow: the compare job is the parent,
 * its trials are the children. Jobs are fetched by hand, because a worker takes a trial only when its host
 * has memory for it.
 */
import { randomUUID } from 'node:crypto'
import { FlowProducer, Queue, UnrecoverableError, Worker, type Job } from 'bullmq'
import type { Redis } from 'ioredis'
import type { z } from 'zod'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { RunId, TrialId } from '../model/ids.js'
import { JobClaim } from './claim.js'
import {
  comparePayloadSchema, compareOptions, COMPARE_QUEUE, jobIdOf, STALLED_MAX, trialOptions, trialPayloadSchema, TRIAL_QUEUE,
} from './jobs.js'
import type {
  AttemptJournal, ClaimedCompare, ClaimedTrial, EnqueueOptions, QueuedTrial, RunQueue, RunQueueStatus, TrialJob,
} from './queue.js'
import { connectRedis, explainRefusal, unreachable, type RedisAddress } from './redis-client.js'
import { WorkNotices } from './work-notices.js'

/** How the queue is opened. */
export interface RunQueueConfig {
  address: RedisAddress
  journal: AttemptJournal
  /** First part of every key; differs where several state homes share one Redis. */
  prefix: string
  /** How long a claim lives without being renewed, milliseconds. Default 30,000. */
  lockDurationMs?: number
  /** How often claims of dead workers are looked for, milliseconds. Default 5,000. */
  stalledIntervalMs?: number
  /** How long Redis may take to answer before it counts as unreachable, milliseconds. Default 5,000. */
  answerTimeoutMs?: number
  /** Longest wait of `waitForWork`, milliseconds. Default 2,000. */
  waitMaxMs?: number
}

const ANSWER_TIMEOUT_MS = 5000
const WAIT_MAX_MS = 2000
const LOCK_DURATION_MS = 30_000
const STALLED_INTERVAL_MS = 5000

/** Attempt numbers outlive their jobs by far; the journal on disk is what keeps them for good. */
const ATTEMPT_KEY_SECONDS = 30 * 24 * 3600

/** Next attempt of a trial: above the counter and above what the journal has seen, in one step. */
const NEXT_ATTEMPT = `
local attempt = redis.call('INCR', KEYS[1])
local seen = tonumber(ARGV[1])
if attempt <= seen then attempt = seen + 1 end
redis.call('SET', KEYS[1], attempt, 'EX', ARGV[2])
return attempt`

/**
 * Opens the queue; Redis answers when this resolves, and may go away and come back afterwards.
 * @throws Kosa8Error QUEUE_UNREACHABLE, CONFIG_INVALID.
 */
export async function openRunQueue(config: RunQueueConfig): Promise<RunQueue> {
  const timeoutMs = config.answerTimeoutMs ?? ANSWER_TIMEOUT_MS
  return new BullmqRunQueue(config, await connectRedis(config.address, timeoutMs), timeoutMs)
}

class BullmqRunQueue implements RunQueue {
  private readonly prefix: string
  private readonly trials: Queue
  private readonly compares: Queue
  private readonly flows: FlowProducer
  private readonly notices: WorkNotices
  private readonly workers = new Map<string, Worker>()
  private readonly claims = new Set<JobClaim>()
  private isClosed = false

  constructor(private readonly config: RunQueueConfig, private readonly client: Redis, private readonly timeoutMs: number) {
    this.prefix = config.prefix
    const base = { connection: client, prefix: this.prefix }
    this.trials = new Queue(TRIAL_QUEUE, base)
    this.compares = new Queue(COMPARE_QUEUE, base)
    this.flows = new FlowProducer(base)
    // Losses of the connection are dealt with by each caller; without a listener they would end the process.
    for (const queue of [this.trials, this.compares]) queue.on('error', () => undefined)
    this.flows.on('error', () => undefined)
    const streams = [this.trials.toKey('events'), this.compares.toKey('events')]
    this.notices = new WorkNotices(client, streams, config.waitMaxMs ?? WAIT_MAX_MS)
  }

  async enqueueRun(run: RunId, trials: QueuedTrial[], options: EnqueueOptions = {}): Promise<void> {
    await this.answered(this.enqueue(run, trials, options.retryFailed ?? false))
  }

  async peekTrial(): Promise<TrialJob | null> {
    // Whoever looks for work also looks for what a dead worker held: nothing else would ever come up.
    await this.workerOf(TRIAL_QUEUE)
    const [waiting] = await this.answered(this.trials.getJobs(['wait'], 0, 0, true))
    const [delayed] = waiting === undefined ? await this.answered(this.trials.getJobs(['delayed'], 0, 0, true)) : []
    const isDue = delayed !== undefined && delayed.timestamp + delayed.delay <= Date.now()
    const next = waiting ?? (isDue ? delayed : undefined)
    return next === undefined ? null : trialPayloadSchema.safeParse(next.data).data ?? null
  }

  async claimTrial(worker: string): Promise<ClaimedTrial | null> {
    const taken = await this.take(TRIAL_QUEUE, worker, trialPayloadSchema)
    if (taken === null) return null
    const { claim, payload } = taken
    try {
      const attempt = await this.beginAttempt(payload)
      return describeTrial(claim, payload, attempt)
    } catch (error) {
      await claim.putBack('its attempt could not be recorded')
      throw error
    }
  }

  async claimCompare(worker: string): Promise<ClaimedCompare | null> {
    return (await this.take(COMPARE_QUEUE, worker, comparePayloadSchema))?.claim ?? null
  }

  async cancelRun(run: RunId): Promise<void> {
    const compare = await this.answered(this.compares.getJob(jobIdOf(run)))
    await this.answered(compare?.removeUnprocessedChildren())
  }

  async releaseClaims(worker: string): Promise<void> {
    for (const queue of [this.trials, this.compares]) {
      for (const job of await this.answered(queue.getActive())) {
        const lock = `${queue.toKey(job.id ?? '')}:lock`
        const token = await this.answered(this.client.get(lock))
        // Without its lock the next look for stalled jobs takes it back.
        if (token?.startsWith(`${worker}-`) === true) await this.answered(this.client.del(lock))
      }
    }
  }

  async forgetRun(run: RunId, trials: TrialId[]): Promise<void> {
    for (const trial of trials) {
      await this.answered(this.removeJob(this.trials, jobIdOf(trial)))
      await this.answered(this.client.del(this.attemptKey(trial)))
    }
    await this.answered(this.removeJob(this.compares, jobIdOf(run)))
  }

  async status(run: RunId, trials: TrialId[]): Promise<RunQueueStatus> {
    const [compare, ...states] = await this.answered(Promise.all([
      this.stateOf(this.compares, run), ...trials.map((trial) => this.stateOf(this.trials, trial)),
    ]))
    const status: RunQueueStatus = { compare, trials: { waiting: 0, active: 0, done: 0, failed: 0, missing: 0 } }
    // A trial has no children, so it is never blocked.
    for (const state of states) if (state !== 'blocked') status.trials[state] += 1
    return status
  }

  async waitForWork(signal: AbortSignal): Promise<void> {
    await this.notices.wait(signal)
  }

  async close(): Promise<void> {
    this.isClosed = true
    for (const claim of [...this.claims]) claim.abandon()
    this.notices.close()
    // Forced: a Redis that is away must not keep us from ending.
    for (const worker of this.workers.values()) await worker.close(true)
    this.client.disconnect()
    await Promise.allSettled([this.trials.close(), this.compares.close(), this.flows.close()])
  }

  private async enqueue(run: RunId, trials: QueuedTrial[], again: boolean): Promise<void> {
    const states = new Map<TrialId, RunQueueStatus['compare']>()
    for (const { trial } of trials) {
      const state = await this.stateOf(this.trials, trial)
      if (state === 'failed' && again) await this.removeJob(this.trials, jobIdOf(trial))
      states.set(trial, state === 'failed' && again ? 'missing' : state)
    }
    const compare = await this.stateOf(this.compares, run)
    const missing = trials.filter(({ trial }) => states.get(trial) === 'missing')
    if (compare === 'active' && missing.length > 0) throw beingCompared(run)
    if (compare === 'blocked') {
      if (missing.length > 0) await this.addFlow(run, missing)
      return
    }
    const hasEnded = compare === 'done' || compare === 'failed'
    if (compare !== 'missing' && missing.length === 0 && !(again && hasEnded)) return
    // The comparison has come up already, or is gone: it must wait again, for every trial that is still to end.
    await this.removeJob(this.compares, jobIdOf(run))
    await this.addFlow(run, trials.filter(({ trial }) => states.get(trial) !== 'failed'))
  }

  /** Adds the compare job and these trials as its children, in one step; jobs that are there stay as they are. */
  private async addFlow(run: RunId, trials: QueuedTrial[]): Promise<void> {
    await this.flows.add({
      name: 'compare', queueName: COMPARE_QUEUE, data: { run }, opts: compareOptions(run),
      children: trials.map((trial) => ({
        name: 'trial', queueName: TRIAL_QUEUE, data: { run, ...trial }, opts: trialOptions(trial.trial),
      })),
    })
  }

  private async take<T extends { run: RunId }>(
    queueName: string, workerName: string, schema: z.ZodType<T>,
  ): Promise<{ claim: JobClaim; payload: T } | null> {
    const worker = await this.workerOf(queueName)
    for (;;) {
      const token = `${workerName}-${randomUUID()}`
      const job = await this.nextJob(worker, token)
      if (job === null) return null
      const payload = schema.safeParse(job.data)
      if (payload.success) return { claim: this.hold(job, token, payload.data.run), payload: payload.data }
      await job.moveToFailed(new UnrecoverableError(`not one of ours: ${payload.error.message}`), token, false)
    }
  }

  private async nextJob(worker: Worker, token: string): Promise<Job | null> {
    try {
      return (await worker.getNextJob(token, { block: false })) ?? null
    } catch (error) {
      // Closing cuts the connection under a claim that waited for Redis to come back.
      if (this.isClosed) return null
      throw error
    }
  }

  private hold(job: Job, token: string, run: RunId): JobClaim {
    const claim = new JobClaim({
      job, token, run, lockDurationMs: this.lockDurationMs, onEnd: (ended) => this.claims.delete(ended),
    })
    this.claims.add(claim)
    return claim
  }

  private async beginAttempt(trial: TrialJob): Promise<number> {
    const seen = await this.config.journal.readAttempt(trial)
    const attempt = Number(await this.client.eval(NEXT_ATTEMPT, 1, this.attemptKey(trial.trial), seen, ATTEMPT_KEY_SECONDS))
    await this.config.journal.storeAttempt(trial, attempt)
    return attempt
  }

  private async workerOf(queueName: string): Promise<Worker> {
    const known = this.workers.get(queueName)
    if (known !== undefined) return known
    const worker = new Worker(queueName, null, {
      connection: this.client, prefix: this.prefix, lockDuration: this.lockDurationMs, maxStalledCount: STALLED_MAX,
      stalledInterval: this.config.stalledIntervalMs ?? STALLED_INTERVAL_MS,
    })
    worker.on('error', () => undefined)
    this.workers.set(queueName, worker)
    await worker.startStalledCheckTimer()
    return worker
  }

  private async stateOf(queue: Queue, id: RunId | TrialId): Promise<RunQueueStatus['compare']> {
    const state = await queue.getJobState(jobIdOf(id))
    switch (state) {
      case 'completed': return 'done'
      case 'failed': return 'failed'
      case 'active': return 'active'
      case 'waiting-children': return 'blocked'
      case 'unknown': return 'missing'
      default: return 'waiting'
    }
  }

  /** A job that is active is left alone: its worker ends it. */
  private async removeJob(queue: Queue, jobId: string): Promise<void> {
    const job = await queue.getJob(jobId)
    if (job === undefined || await job.isActive()) return
    await job.remove({ removeChildren: false })
  }

  /** Commands wait for a Redis that is away; what a user waits for must not. */
  private async answered<T>(answer: Promise<T> | undefined): Promise<T> {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<never>((_, reject) => {
      const error = unreachable(this.config.address, new Error(`no answer within ${this.timeoutMs} ms`))
      timer = setTimeout(() => reject(error), this.timeoutMs)
    })
    try {
      return await Promise.race([answer as Promise<T>, late])
    } catch (error) {
      throw explainRefusal(this.config.address, error)
    } finally {
      clearTimeout(timer)
    }
  }

  private attemptKey(trial: TrialId): string {
    return `${this.prefix}:attempt:${jobIdOf(trial)}`
  }

  private get lockDurationMs(): number {
    return this.config.lockDurationMs ?? LOCK_DURATION_MS
  }
}

/** The claim with the trial's own fields; methods stay bound to the claim. */
function describeTrial(claim: JobClaim, job: TrialJob, attempt: number): ClaimedTrial {
  return {
    ...job,
    attempt,
    isLastAttempt: claim.isLastAttempt,
    givenUp: claim.givenUp,
    lost: claim.lost,
    finish: () => claim.finish(),
    fail: (error, options) => claim.fail(error, options),
    putBack: (reason, delayMs) => claim.putBack(reason, delayMs),
  }
}

function beingCompared(run: RunId): Kosa8Error {
  return new Kosa8Error('RUN_ACTIVE', `run ${run} is being compared right now`, { hint: `wait for it to end: kosa8 runs show ${run}` })
}
