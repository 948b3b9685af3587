/**
 * A job in our hands: its lock is renewed until one of its ends, or until it is lost.
 *
 * Owns: the heartbeat and the decision that a claim is lost. A claim is lost when Redis says so, and
 * also when nothing was heard for as long as the lock lives: a busy event loop or a Redis that is away
 * must not leave two workers sure of one trial.
 */
import { UnrecoverableError, type Job } from 'bullmq'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { RunId } from '../model/ids.js'
import { ATTEMPTS_MAX } from './jobs.js'
import type { Claim } from './queue.js'

/** BullMQ's answers when the lock is not ours: job gone, lock gone, not active, lock of somebody else. */
const NOT_OURS_CODES = [-1, -2, -3, -6]

/** What a claim is made from. */
export interface ClaimConfig {
  job: Job
  token: string
  run: RunId
  lockDurationMs: number
  /** Called once, when the claim has ended in any way. */
  onEnd: (claim: JobClaim) => void
}

/** The claim on one job. */
export class JobClaim implements Claim {
  readonly run: RunId
  readonly isLastAttempt: boolean
  readonly givenUp: string | null
  private readonly losing = new AbortController()
  private readonly timer: NodeJS.Timeout
  private renewedAt = performance.now()
  private hasEnded = false

  constructor(private readonly config: ClaimConfig) {
    this.run = config.run
    this.isLastAttempt = config.job.attemptsMade + 1 >= ATTEMPTS_MAX
    this.givenUp = config.job.deferredFailure ?? null
    this.timer = setInterval(() => void this.renew(), config.lockDurationMs / 2)
  }

  get lost(): AbortSignal {
    return this.losing.signal
  }

  async finish(): Promise<boolean> {
    return this.end((job, token) => job.moveToCompleted(null, token, false))
  }

  async fail(error: Error, options: { retry: boolean }): Promise<'retried' | 'failed' | 'lost'> {
    const reason = options.retry ? error : new UnrecoverableError(error.message)
    if (!await this.end((job, token) => job.moveToFailed(reason, token, false))) return 'lost'
    return options.retry && !this.isLastAttempt ? 'retried' : 'failed'
  }

  async putBack(reason: string, delayMs = 0): Promise<boolean> {
    return this.end(async (job, token) => {
      await job.log(`put back: ${reason}`)
      await (delayMs > 0 ? job.moveToDelayed(Date.now() + delayMs, token) : job.moveToWait(token))
    })
  }

  /** Stops the heartbeat and leaves the job to the stalled check. */
  abandon(): void {
    if (this.hasEnded) return
    this.hasEnded = true
    clearInterval(this.timer)
    this.config.onEnd(this)
  }

  private async end(move: (job: Job, token: string) => Promise<unknown>): Promise<boolean> {
    if (this.hasEnded) return false
    // A renewal after the move would find no lock and look like a loss.
    this.abandon()
    try {
      await move(this.config.job, this.config.token)
      return true
    } catch (error) {
      if (NOT_OURS_CODES.includes((error as { code?: number }).code ?? 0)) return false
      throw error
    }
  }

  private async renew(): Promise<void> {
    const sentAt = performance.now()
    const silentMs = sentAt - this.renewedAt
    if (silentMs >= this.config.lockDurationMs) return this.lose(`it was not renewed for ${Math.round(silentMs)} ms`)
    try {
      const renewed = await this.config.job.extendLock(this.config.token, this.config.lockDurationMs)
      if (renewed === 1) this.renewedAt = sentAt
      else this.lose('the queue gave it to somebody else, or lost it')
    } catch {
      // Redis is away: the next beat tries again, and time decides when the claim is lost.
    }
  }

  private lose(reason: string): void {
    if (this.hasEnded) return
    this.abandon()
    this.losing.abort(new Kosa8Error('QUEUE_UNREACHABLE', `the claim on ${decodeURIComponent(this.config.job.id ?? '')} was lost: ${reason}`, {
      hint: 'the trial is delivered again by itself; a result of this attempt is not accepted once the next has begun',
    }))
  }
}
