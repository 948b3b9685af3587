/**
 * The queue as the rest of kosa8 sees it: verbs of our domain, no word of BullMQ.
 *
 * Owns: the contract. `bullmq-queue.ts` implements it. The queue carries ids only and delivers at least
 * once; who may report a result is decided by the attempt number and the store's write-once records.
 *
 *   trial:    waiting ──claimTrial──> active ──finish──> done
 *                ^   putBack, retry     │ fail for good ─> failed      (both release the compare job
 *                └── lock lost, stalled ┘                               once no trial is left)
 *   compare:  blocked ──last trial ended──> waiting ──claimCompare──> active ──finish──> done
 */
import type { RunId, TrialId } from '../model/ids.js'

/** One trial to be queued. */
export interface QueuedTrial {
  trial: TrialId
  label: string
  repeat: number
  isBaseline: boolean
}

/** A trial as its job describes it. */
export interface TrialJob extends QueuedTrial {
  run: RunId
}

/** How a run is queued. */
export interface EnqueueOptions {
  /** Take an ended run up again: trials that failed for good, and the comparison; false by default. */
  retryFailed?: boolean
}

/** What is claimed: held until one of its ends is called or `lost` fires. */
export interface Claim {
  readonly run: RunId
  /** True when `fail` with retry would be for good: error attempts are used up. */
  readonly isLastAttempt: boolean
  /**
   * Set when this work ended its workers too often: do not do it again, store an error record with this
   * text and fail it for good.
   */
  readonly givenUp: string | null
  /** Fires when the claim could not be renewed in time; somebody else may have it now. Reason: a Kosa8Error. */
  readonly lost: AbortSignal
  /**
   * Ends the claim well; call it after the result is durable.
   * @returns false when the claim was no longer ours; nothing is changed then.
   */
  finish(): Promise<boolean>
  /**
   * Ends the claim after an error of the infrastructure.
   * @param options.retry false: for good. true: queued again unless the attempts are used up.
   * @returns what became of it; `lost` when the claim was no longer ours.
   */
  fail(error: Error, options: { retry: boolean }): Promise<'retried' | 'failed' | 'lost'>
  /**
   * Gives it back without an attempt counted: pre-emption or shutdown.
   * @param delayMs time before it may be claimed again, 0 by default
   * @returns false when the claim was no longer ours
   */
  putBack(reason: string, delayMs?: number): Promise<boolean>
}

/** A trial in the hands of a worker. */
export interface ClaimedTrial extends Claim, QueuedTrial {
  /** Fencing number: grows with each delivery of this trial, also when the queue lost its memory. */
  readonly attempt: number
}

/** The comparison of a run in the hands of a worker. */
export type ClaimedCompare = Claim

/** Where the jobs of a run are. */
export interface RunQueueStatus {
  /** `missing`: the queue knows nothing of it (never queued, or the queue lost its memory). */
  compare: 'missing' | 'blocked' | 'waiting' | 'active' | 'done' | 'failed'
  trials: { waiting: number; active: number; done: number; failed: number; missing: number }
}

/** What the queue needs to know of earlier attempts, so that their numbers never go back; the store has it. */
export interface AttemptJournal {
  /** The latest attempt begun, 0 for none. */
  readAttempt(trial: { run: RunId; label: string; repeat: number }): Promise<number>
  /** Makes it durable that an attempt has begun. */
  storeAttempt(trial: { run: RunId; label: string; repeat: number }, attempt: number): Promise<void>
}

/** The queue of runs. Every method rejects QUEUE_UNREACHABLE when Redis does not answer in time, but claims wait. */
export interface RunQueue {
  /** Adds a run's compare job and its trials; what is there already stays as it is. */
  enqueueRun(run: RunId, trials: QueuedTrial[], options?: EnqueueOptions): Promise<void>
  /** The trial that would be claimed next; advisory, it is not taken. */
  peekTrial(): Promise<TrialJob | null>
  /** Takes the next trial; null when there is none. The claim is renewed by itself until it ends. */
  claimTrial(worker: string): Promise<ClaimedTrial | null>
  /** Takes the next run whose trials have all ended; null when there is none. */
  claimCompare(worker: string): Promise<ClaimedCompare | null>
  /** Removes the trials that wait; the compare job stays and comes up once the active ones have ended. */
  cancelRun(run: RunId): Promise<void>
  /** Gives up what a worker that has died had claimed, so that nobody waits for its claims to run out. */
  releaseClaims(worker: string): Promise<void>
  /** Removes every job of a run that is not active. */
  forgetRun(run: RunId, trials: TrialId[]): Promise<void>
  status(run: RunId, trials: TrialId[]): Promise<RunQueueStatus>
  /** Resolves when something may have become claimable, at the latest after a few seconds, or when the signal fires. */
  waitForWork(signal: AbortSignal): Promise<void>
  /** Lets go of Redis; claims not ended are lost and delivered again. */
  close(): Promise<void>
}

/** Name of a worker process in the queue; no later process has the same. */
export function workerNameOf({ pid, startTicks }: { pid: number; startTicks: number }): string {
  return `worker-${pid}-${startTicks}`
}
