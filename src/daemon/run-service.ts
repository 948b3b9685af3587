/**
 * Runs as the daemon's HTTP interface offers them: asked for, listed, looked into, applied and removed.
 *
 * Owns: checking a request before anything starts, and reading what is stored. What goes on around a run that
 * has not ended is in `active-runs.ts`.
 */
import { createReadStream } from 'node:fs'
import path from 'node:path'
import { Readable } from 'node:stream'
import { Kosa8Error, toKosa8Error } from '../errors/kosa8-error.js'
import { applyResult } from '../git/apply.js'
import { diffBetween } from '../git/compare-results.js'
import { openRepository, removeRunRefs } from '../git/repository.js'
import { BASELINE_LABEL, createRunId, type RunId } from '../model/ids.js'
import type { RunEvent, RunPlan, TrialRecord } from '../model/run.js'
import { requireRoomForRun } from '../orchestrator/run-preparation.js'
import { checkStrategies } from '../orchestrator/strategy-check.js'
import type { Sandboxes } from '../orchestrator/sandboxes.js'
import type {
  AppliedApproach, ApplyRunRequest, CancelRunRequest, RunRequest, RunStatus, RunSummary, TrialStatus,
} from '../protocol/runs.js'
import type { Paths } from '../store/paths.js'
import { isFinalPhase, type RunStore } from '../store/run-store.js'
import type { Clock } from '../util/clock.js'
import type { ActiveRuns } from './active-runs.js'
import { trialsOf } from './planned-trials.js'
import { withRoomNotices } from './room-notices.js'
import type { RunService } from './services.js'

/** What runs are offered with. */
export interface RunCallsParts {
  runs: RunStore
  paths: Paths
  clock: Clock
  sandboxes: Sandboxes
  active: ActiveRuns
}

/** Implements the runs of the daemon's HTTP interface. */
export class RunCalls implements RunService {
  constructor(private readonly parts: RunCallsParts) {}

  async start(request: RunRequest): Promise<{ id: string }> {
    const repository = await openRepository(request.repository)
    if (request.sandbox !== null) await this.parts.sandboxes.repositoryOf(request.sandbox)
    if (request.sandbox !== null && request.from !== null) {
      await this.parts.sandboxes.checkpoints.find(request.sandbox, request.from)
    }
    if (request.machine !== null) await this.parts.sandboxes.requireImage(request.machine.image)
    await requireRoomForRun(this.parts.paths.home, request.machine)
    await checkStrategies(request.approaches)
    const now = this.parts.clock.now()
    const id = createRunId(now)
    const createdAt = new Date(now).toISOString()
    await this.parts.runs.createRun({
      id, createdAt, repository: repository.topLevel, labels: request.approaches.map(({ label }) => label),
    })
    this.parts.active.begin(id, createdAt, request)
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
    return withRoomNotices(this.parts.runs.followEvents(id as RunId, fromSeq, signal), this.parts.paths.home, fromSeq)
  }

  async cancel(id: string, request: CancelRunRequest): Promise<void> {
    const run = id as RunId
    if (isFinalPhase((await this.parts.runs.readPhase(run)).phase)) return
    // The note is for others, and for the next daemon; to be cancelled a run needs no room.
    await this.parts.runs.requestCancel(run, request.reason).catch((error: unknown) => {
      if (toKosa8Error(error).code !== 'DISK_FULL') throw error
    })
    await this.parts.active.end(run, new Kosa8Error(request.as === 'cancelled' ? 'CANCELLED' : 'INTERRUPTED', request.reason))
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
