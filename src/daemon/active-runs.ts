/**
 * The runs that go on in this daemon, from the request to the end.
 *
 *   start → prepare (orchestrator) → plan stored → queued → … worker … → concluded → tidied up
 *
 * Owns: following a run through these steps, stopping it, and taking it up again after a restart. Evidence and
 * judgement are made by the worker and stored; this file only watches.
 */
import { Kosa8Error, serialiseError, toKosa8Error } from '../errors/kosa8-error.js'
import type { CheckpointId, RunId, SandboxName } from '../model/ids.js'
import type { RunPlan } from '../model/run.js'
import { decideKept } from '../orchestrator/keep-clone.js'
import { concludeRun, type ConclusionParts, type RunEnd } from '../orchestrator/run-conclusion.js'
import { prepareRun } from '../orchestrator/run-preparation.js'
import type { Sandboxes } from '../orchestrator/sandboxes.js'
import type { RunRequest } from '../protocol/runs.js'
import type { RunQueue } from '../queue/queue.js'
import { isFinalPhase } from '../store/run-store.js'
import { countOf } from '../util/count-of.js'
import { onceThereIsRoom, tellDiskFull } from '../util/disk-space.js'
import { trialsOf } from './planned-trials.js'
import type { ReservationBook } from './reservation-book.js'

/** A cancelled run waits this long for its trials to let go, milliseconds. */
const CANCEL_WAIT_MS = 10_000

/** Jobs of an ended run that somebody still holds are waited for this long, milliseconds. */
const FORGET_WAIT_MS = 60_000

/** What runs go on with. */
export interface ActiveRunsParts extends ConclusionParts {
  sandboxes: Sandboxes
  queue: RunQueue
  book: ReservationBook
  /** Makes sure that somebody works on the queue. */
  ensureWorker: () => Promise<void>
  onError: (message: string, error: unknown) => void
}

/** Runs that have not ended, or are not tidied up yet. */
export class ActiveRuns {
  private readonly active = new Map<RunId, { stop: AbortController; done: Promise<void> }>()
  private readonly stopping = new AbortController()

  constructor(private readonly parts: ActiveRunsParts) {}

  get count(): number {
    return this.active.size
  }

  /** Prepares a run that was just created and follows it to its end. */
  begin(id: RunId, createdAt: string, request: RunRequest): void {
    this.follow(id, (signal) => this.live(id, createdAt, request, signal))
  }

  /** Ends a run before its time; settles once it has ended. */
  async end(run: RunId, reason: Kosa8Error): Promise<void> {
    const live = this.active.get(run)
    live?.stop.abort(reason)
    await live?.done
  }

  /** Takes up every run that an earlier daemon left unfinished. */
  async recover(): Promise<void> {
    for (const summary of await this.parts.runs.listRuns()) {
      const plan = await this.parts.runs.readPlan(summary.id)
      if (isFinalPhase(summary.phase)) {
        if (!await this.parts.runs.isTidied(summary.id)) this.follow(summary.id, () => this.cleanUp(summary.id, plan))
        continue
      }
      const cancelled = await this.parts.runs.readCancelRequest(summary.id)
      if (plan === null || cancelled !== null) {
        const message = cancelled ?? 'kosa8 was stopped while it prepared the run'
        const end: RunEnd = { state: 'interrupted', message, error: null }
        await this.conclude(summary.id, end).catch((error: unknown) => {
          if (toKosa8Error(error).code !== 'DISK_FULL') throw error
          this.follow(summary.id, () => this.concludeOnceThereIsRoom(summary.id, end))
        })
      } else {
        this.follow(summary.id, (signal) => this.drive(plan, signal))
      }
    }
  }

  /** Lets go of every run; the next daemon takes them up. */
  stop(): void {
    this.stopping.abort(new Kosa8Error('INTERRUPTED', 'the daemon stops'))
    for (const { stop } of this.active.values()) stop.abort(new Kosa8Error('INTERRUPTED', 'the daemon stops'))
  }

  private follow(run: RunId, live: (signal: AbortSignal) => Promise<void>): void {
    const stop = new AbortController()
    const done = live(stop.signal).catch((error: unknown) => this.endBadly(run, error, stop.signal))
      .catch((error: unknown) => this.parts.onError(`run ${run} could not be ended`, error))
      .finally(() => this.active.delete(run))
    this.active.set(run, { stop, done })
  }

  private async live(id: RunId, createdAt: string, request: RunRequest, signal: AbortSignal): Promise<void> {
    const plan = await prepareRun({
      id, createdAt, request, sandboxes: this.parts.sandboxes, signal,
      onProgress: (message) => void this.parts.runs.setPhase(id, 'preparing', message)
        .catch((error: unknown) => this.parts.onError(`progress of ${id} lost`, error)),
    }).catch(async (error: unknown) => {
      if (request.sandbox !== null) throw error
      throw await tellDiskFull(error, { what: 'the run', folder: this.parts.paths.home, kept: 'what was made for it is gone again' })
    })
    await this.withRoom(id, signal, () => this.parts.runs.storePlan(plan))
    await this.drive(plan, signal)
  }

  /** From a stored plan to the end of the run. Safe to start anew at any point. */
  private async drive(plan: RunPlan, signal: AbortSignal): Promise<void> {
    const { runs, ensureWorker } = this.parts
    const run = plan.id as RunId
    signal.throwIfAborted()
    await this.withRoom(run, signal, async () => {
      await runs.setPhase(run, 'running', `${countOf(plan.approaches.length * plan.repeats, 'trial')} queued`)
      await this.enqueue(plan)
      await ensureWorker()
    })
    const ended = new AbortController()
    const refill = this.keepQueued(plan, AbortSignal.any([signal, ended.signal]))
    for await (const event of runs.followEvents(run, 0, signal)) if (event.type === 'run-end') break
    ended.abort()
    await refill
    signal.throwIfAborted()
    await this.cleanUp(run, plan)
  }

  /** Once its checkpoint is there a run goes on as soon as there is room; what that took is not thrown away. */
  private async withRoom(run: RunId, signal: AbortSignal, work: () => Promise<unknown>): Promise<void> {
    await onceThereIsRoom(work, signal, (error) => this.parts.onError(`${run} waits for room`, error))
  }

  private async enqueue(plan: RunPlan): Promise<void> {
    await this.parts.queue.enqueueRun(plan.id as RunId, trialsOf(plan))
  }

  /** A queue that lost its memory is filled again from the plan; what has a record ends at once. */
  private async keepQueued(plan: RunPlan, signal: AbortSignal): Promise<void> {
    const trials = trialsOf(plan).map(({ trial }) => trial)
    while (!signal.aborted) {
      await this.parts.queue.waitForWork(signal)
      if (signal.aborted) return
      try {
        const status = await this.parts.queue.status(plan.id as RunId, trials)
        if (status.compare === 'missing' || status.trials.missing > 0) await this.enqueue(plan)
        if (status.compare === 'done' || status.compare === 'failed') await this.concludeForgotten(plan, status.compare)
        await this.parts.ensureWorker()
      } catch (error) {
        this.parts.onError(`looking after ${plan.id} failed`, error)
      }
    }
  }

  /** The compare job is over but the run is not: its worker died in between, or could not do it. */
  private async concludeForgotten(plan: RunPlan, compare: 'done' | 'failed'): Promise<void> {
    const run = plan.id as RunId
    if (isFinalPhase((await this.parts.runs.readPhase(run)).phase)) return
    await this.conclude(run, { state: 'completed', message: `compared by the daemon, the queue says ${compare}`, error: null })
  }

  private async endBadly(run: RunId, thrown: unknown, signal: AbortSignal): Promise<void> {
    if (this.stopping.signal.aborted) return
    const error = toKosa8Error(signal.aborted ? signal.reason : thrown)
    const wasAsked = error.code === 'CANCELLED' || error.code === 'INTERRUPTED'
    if (!wasAsked) this.parts.onError(`run ${run} failed`, thrown)
    if (wasAsked) await this.stopTrials(run)
    await this.concludeOnceThereIsRoom(run, {
      state: error.code === 'CANCELLED' ? 'cancelled' : error.code === 'INTERRUPTED' ? 'interrupted' : 'failed',
      message: error.message, error: wasAsked ? null : serialiseError(error),
    })
  }

  private async stopTrials(run: RunId): Promise<void> {
    await this.parts.queue.cancelRun(run).catch((error: unknown) => this.parts.onError(`cancelling ${run} in the queue failed`, error))
    this.parts.book.cancelRun(run)
    await this.parts.book.waitUntilReleased(run, AbortSignal.timeout(CANCEL_WAIT_MS))
  }

  /** Nobody else would end it, and who follows it would wait for ever. */
  private async concludeOnceThereIsRoom(run: RunId, end: RunEnd): Promise<void> {
    await onceThereIsRoom(() => this.conclude(run, end), this.stopping.signal, (error) => this.parts.onError(`the end of ${run} waits for room`, error))
  }

  private async conclude(run: RunId, end: RunEnd): Promise<void> {
    const hasEnded = isFinalPhase((await this.parts.runs.readPhase(run)).phase)
    if (!hasEnded) await concludeRun(this.parts, run, end)
    await this.cleanUp(run, await this.parts.runs.readPlan(run))
  }

  /** Everything that was made for an ended run goes. Safe to repeat; a daemon that dies here leaves it to the next. */
  private async cleanUp(run: RunId, plan: RunPlan | null): Promise<void> {
    try {
      await this.tidy(run, plan)
      if (plan !== null) await this.forgetJobs(plan)
      await this.parts.runs.noteTidied(run)
    } catch (error) {
      this.parts.onError(`run ${run} could not be tidied up; the next start tries again`, error)
    }
  }

  /** A job somebody is just ending cannot be removed yet. */
  private async forgetJobs(plan: RunPlan): Promise<void> {
    const run = plan.id as RunId
    const trials = trialsOf(plan).map(({ trial }) => trial)
    const deadline = AbortSignal.timeout(FORGET_WAIT_MS)
    for (;;) {
      await this.parts.queue.forgetRun(run, trials)
      const status = await this.parts.queue.status(run, trials)
      if (status.compare === 'missing' && status.trials.missing === trials.length) return
      if (deadline.aborted) throw new Kosa8Error('QUEUE_UNREACHABLE', `jobs of ${run} do not end`)
      await this.parts.queue.waitForWork(deadline)
    }
  }

  /** What was made for the run and is not to be kept goes away with it. */
  private async tidy(run: RunId, plan: RunPlan | null): Promise<void> {
    const document = await this.parts.runs.readRunDocument(run)
    if (plan !== null && document !== null) await this.parts.sandboxes.settleKept(plan, decideKept(plan, document))
    await this.parts.sandboxes.deleteOwnedBy(run)
    if (plan === null || plan.sandboxIsOwned) return
    const isOfTheRun = plan.checkpoint.label === `run ${run}`
    if (isOfTheRun) await this.parts.sandboxes.checkpoints.remove(plan.sandbox as SandboxName, plan.checkpoint.id as CheckpointId)
  }
}
