/**
 * Runs, from the request to the result document.
 *
 *   start → prepare (orchestrator) → plan stored → queued → … worker … → concluded → tidied up
 *
 * Owns: what goes on in the daemon around a run, cancelling it, and taking it up again after a restart.
 * Evidence and judgement are made by the worker and stored; this file only watches.
 */
import { createReadStream } from 'node:fs'
import path from 'node:path'
import { Readable } from 'node:stream'
import { Kosa8Error, serialiseError, toKosa8Error } from '../errors/kosa8-error.js'
import { applyResult } from '../git/apply.js'
import { diffBetween } from '../git/compare-results.js'
import { openRepository, removeRunRefs } from '../git/repository.js'
import { BASELINE_LABEL, createRunId, trialIdOf, type CheckpointId, type RunId, type SandboxName } from '../model/ids.js'
import type { RunEvent, RunPlan, TrialRecord } from '../model/run.js'
import { decideKept } from '../orchestrator/keep-clone.js'
import { concludeRun, type ConclusionParts, type RunEnd } from '../orchestrator/run-conclusion.js'
import { checkStrategies } from '../orchestrator/strategy-check.js'
import { prepareRun } from '../orchestrator/run-preparation.js'
import type { Sandboxes } from '../orchestrator/sandboxes.js'
import type {
  AppliedApproach, ApplyRunRequest, CancelRunRequest, RunRequest, RunStatus, RunSummary, TrialStatus,
} from '../protocol/runs.js'
import type { QueuedTrial, RunQueue } from '../queue/queue.js'
import { isFinalPhase } from '../store/run-store.js'
import { countOf } from '../util/count-of.js'
import type { ReservationBook } from './reservation-book.js'
import type { RunService } from './services.js'

/** A cancelled run waits this long for its trials to let go, milliseconds. */
const CANCEL_WAIT_MS = 10_000

/** Jobs of an ended run that somebody still holds are waited for this long, milliseconds. */
const FORGET_WAIT_MS = 60_000

/** What runs are made with. */
export interface RunServiceParts extends ConclusionParts {
  sandboxes: Sandboxes
  queue: RunQueue
  book: ReservationBook
  /** Makes sure that somebody works on the queue. */
  ensureWorker: () => Promise<void>
  onError: (message: string, error: unknown) => void
}

/** Implements the runs of the daemon's HTTP interface. */
export class Runs implements RunService {
  private readonly active = new Map<RunId, { stop: AbortController; done: Promise<void> }>()

  constructor(private readonly parts: RunServiceParts) {}

  /** Runs that have not ended. */
  get activeCount(): number {
    return this.active.size
  }

  async start(request: RunRequest): Promise<{ id: string }> {
    const repository = await openRepository(request.repository)
    if (request.sandbox !== null) await this.parts.sandboxes.repositoryOf(request.sandbox)
    if (request.sandbox !== null && request.from !== null) {
      await this.parts.sandboxes.checkpoints.find(request.sandbox, request.from)
    }
    if (request.machine !== null) await this.parts.sandboxes.requireImage(request.machine.image)
    await checkStrategies(request.approaches)
    const now = this.parts.clock.now()
    const id = createRunId(now)
    const createdAt = new Date(now).toISOString()
    await this.parts.runs.createRun({
      id, createdAt, repository: repository.topLevel, labels: request.approaches.map(({ label }) => label),
    })
    this.follow(id, (signal) => this.live(id, createdAt, request, signal))
    return { id }
  }

  async list(): Promise<RunSummary[]> {
    const summaries = await this.parts.runs.listRuns()
    const described = await Promise.all(summaries.map(async (summary): Promise<RunSummary> => {
      const document = isFinalPhase(summary.phase) ? await this.parts.runs.readRunDocument(summary.id) : null
      return {
        id: summary.id, createdAt: summary.createdAt, phase: summary.phase, repository: summary.repository ?? '',
        sandbox: document?.sandbox ?? null, approaches: summary.labels, winner: document?.winner ?? null,
      }
    }))
    return described.reverse()
  }

  async get(id: string): Promise<RunStatus> {
    const run = id as RunId
    const { runs } = this.parts
    const { phase } = await runs.readPhase(run)
    const plan = await runs.readPlan(run)
    return {
      id, phase, plan,
      trials: plan === null ? [] : trialStatuses(plan, await runs.readEvents(run)),
      document: isFinalPhase(phase) ? await runs.readRunDocument(run) : null,
    }
  }

  events(id: string, fromSeq: number, signal: AbortSignal): AsyncIterable<RunEvent> {
    return this.parts.runs.followEvents(id as RunId, fromSeq, signal)
  }

  async cancel(id: string, request: CancelRunRequest): Promise<void> {
    const run = id as RunId
    if (isFinalPhase((await this.parts.runs.readPhase(run)).phase)) return
    await this.parts.runs.requestCancel(run, request.reason)
    const error = new Kosa8Error(request.as === 'cancelled' ? 'CANCELLED' : 'INTERRUPTED', request.reason)
    const live = this.active.get(run)
    live?.stop.abort(error)
    await live?.done
  }

  async remove(id: string): Promise<void> {
    const run = id as RunId
    const { phase } = await this.parts.runs.readPhase(run)
    if (!isFinalPhase(phase)) {
      throw new Kosa8Error('RUN_ACTIVE', `run ${id} has not ended`, { hint: 'stop it first with Ctrl-C where it was started, or wait for its end' })
    }
    const { repository } = await this.parts.runs.readRequest(run)
    if (repository !== null) {
      await openRepository(repository).then((found) => removeRunRefs(found, id)).catch((error: unknown) => {
        // A repository that is gone has no refs left to remove.
        if (!Kosa8Error.isInstance(error) || error.code !== 'REPOSITORY_INVALID') throw error
      })
    }
    await this.parts.runs.removeRun(run)
  }

  async apply(id: string, request: ApplyRunRequest): Promise<AppliedApproach> {
    const plan = await this.requirePlan(id)
    const record = await this.selectTrial(plan, request.approach)
    if (record.diff === null) {
      throw new Kosa8Error('APPROACH_INVALID', `${request.approach} left no change that could be applied`, { hint: `see why with: kosa8 runs show ${id}` })
    }
    const applied = await applyResult(await openRepository(plan.repository), {
      commit: record.diff.commit, base: plan.base, fallbackBranch: `kosa8/${id}/${record.label}`,
      ...(request.branch === undefined ? {} : { branch: request.branch }),
    })
    return { ...applied, files: record.diff.files }
  }

  async diff(id: string, a: string, b: string | null): Promise<Readable> {
    const plan = await this.requirePlan(id)
    const first = await this.selectTrial(plan, a)
    const runDirectory = this.parts.paths.runDirectory(id as RunId)
    if (b === null) return first.diff === null ? Readable.from([]) : createReadStream(path.join(runDirectory, first.diff.patch))
    const second = await this.selectTrial(plan, b)
    const { patch } = await diffBetween(
      await openRepository(plan.repository), first.diff?.commit ?? plan.base.commit, second.diff?.commit ?? plan.base.commit)
    return Readable.from([patch])
  }

  async directory(id: string): Promise<string> {
    await this.parts.runs.readRequest(id as RunId)
    return this.parts.paths.runDirectory(id as RunId)
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
        await this.conclude(summary.id, { state: 'interrupted', message, error: null })
      } else {
        this.follow(summary.id, (signal) => this.drive(plan, signal))
      }
    }
  }

  /** Lets go of every run; the next daemon takes them up. */
  stop(): void {
    this.isStopping = true
    for (const { stop } of this.active.values()) stop.abort(new Kosa8Error('INTERRUPTED', 'the daemon stops'))
  }

  private isStopping = false

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
    })
    await this.parts.runs.storePlan(plan)
    await this.drive(plan, signal)
  }

  /** From a stored plan to the end of the run. Safe to start anew at any point. */
  private async drive(plan: RunPlan, signal: AbortSignal): Promise<void> {
    const { runs, ensureWorker } = this.parts
    const run = plan.id as RunId
    signal.throwIfAborted()
    await runs.setPhase(run, 'running', `${countOf(plan.approaches.length * plan.repeats, 'trial')} queued`)
    await this.enqueue(plan)
    await ensureWorker()
    const ended = new AbortController()
    const refill = this.keepQueued(plan, AbortSignal.any([signal, ended.signal]))
    for await (const event of runs.followEvents(run, 0, signal)) if (event.type === 'run-end') break
    ended.abort()
    await refill
    signal.throwIfAborted()
    await this.cleanUp(run, plan)
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
    if (this.isStopping && signal.aborted) return
    const error = toKosa8Error(signal.aborted ? signal.reason : thrown)
    const wasAsked = error.code === 'CANCELLED' || error.code === 'INTERRUPTED'
    if (!wasAsked) this.parts.onError(`run ${run} failed`, thrown)
    if (wasAsked) await this.stopTrials(run)
    await this.conclude(run, {
      state: error.code === 'CANCELLED' ? 'cancelled' : error.code === 'INTERRUPTED' ? 'interrupted' : 'failed',
      message: error.message, error: wasAsked ? null : serialiseError(error),
    })
  }

  private async stopTrials(run: RunId): Promise<void> {
    await this.parts.queue.cancelRun(run).catch((error: unknown) => this.parts.onError(`cancelling ${run} in the queue failed`, error))
    this.parts.book.cancelRun(run)
    await this.parts.book.waitUntilReleased(run, AbortSignal.timeout(CANCEL_WAIT_MS))
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

  private async requirePlan(id: string): Promise<RunPlan> {
    const plan = await this.parts.runs.readPlan(id as RunId)
    if (plan === null) throw new Kosa8Error('RUN_UNKNOWN', `run ${id} has no trials`, { hint: 'choose another run with: kosa8 runs ls' })
    return plan
  }

  private async selectTrial(plan: RunPlan, selector: string): Promise<TrialRecord> {
    const records = await this.parts.runs.readTrialRecords(plan.id as RunId)
    const [label, repeat] = splitSelector(selector)
    const found = records.find((record) => record.label === label && record.repeat === repeat)
    if (found !== undefined) return found
    const known = [...new Set(records.map((record) => record.label))].filter((name) => name !== BASELINE_LABEL)
    throw new Kosa8Error('APPROACH_UNKNOWN', `run ${plan.id} has no result for ${selector}`, {
      hint: known.length === 0 ? 'none of its trials left a result' : `it has: ${known.join(', ')}`,
    })
  }
}

/** `label` or `label/repeat`; the first repeat by default. */
function splitSelector(selector: string): [label: string, repeat: number] {
  const match = /^(.*)\/(\d+)$/.exec(selector)
  return match === null ? [selector, 1] : [match[1] as string, Number(match[2])]
}

/** Every trial of a plan: the baseline first, since all others are compared with it. */
function trialsOf(plan: RunPlan): QueuedTrial[] {
  const labels = [...(plan.test === null ? [] : [BASELINE_LABEL]), ...plan.approaches.map(({ label }) => label)]
  return labels.flatMap((label) => Array.from({ length: plan.repeats }, (_, index) => ({
    trial: trialIdOf(plan.id as RunId, label, index + 1), label, repeat: index + 1, isBaseline: label === BASELINE_LABEL,
  })))
}

/** Where each trial is, from the run's events; the last word counts. */
function trialStatuses(plan: RunPlan, events: RunEvent[]): TrialStatus[] {
  const statuses = new Map<string, TrialStatus>(trialsOf(plan).map(({ label, repeat }) => [
    `${label}/${repeat}`, { label, repeat, phase: 'queued', message: '', state: null },
  ]))
  for (const event of events) {
    if (event.type !== 'trial-phase' && event.type !== 'trial-end') continue
    const status = statuses.get(`${event.label}/${event.repeat}`)
    if (status === undefined) continue
    if (event.type === 'trial-phase') Object.assign(status, { phase: event.phase, message: event.message })
    else Object.assign(status, { phase: 'done', message: event.summary, state: event.state })
  }
  return [...statuses.values()]
}
