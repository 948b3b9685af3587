/**
 * Durable records of runs: the request, the plan, the phase, the events, the evidence, the result.
 *
 * Owns: what lies in `runs/<run>/`. Written by daemon and worker at once: everything that may happen
 * only once (plan, record of a trial, end of the run) is a file that only one writer can create.
 *
 *   createRun ──> preparing ──> running ──> comparing ──> completed | failed | cancelled | interrupted
 *      request.json  plan.json      trials/…/record.json      run.json, then end.json
 *                                          reopenRun <──────────────────┘
 */
import { appendFile, rename, rm } from 'node:fs/promises'
import path from 'node:path'
import pLimit from 'p-limit'
import { z } from 'zod'
import { Kosa8Error, type ErrorRecord } from '../errors/kosa8-error.js'
import type { RunId } from '../model/ids.js'
import {
  errorRecordSchema, runDocumentSchema, runPhaseSchema, runPlanSchema, trialRecordSchema,
  type RunDocument, type RunEvent, type RunPhase, type RunPlan, type TrialRecord,
} from '../model/run.js'
import { systemClock, type Clock } from '../util/clock.js'
import { makeFolder } from '../util/make-folder.js'
import { appendToLog, followLog, readLog, type NewRunEvent } from './event-log.js'
import { FileWatch } from './file-watch.js'
import type { Paths } from './paths.js'
import { listFolder, readRecord, writeRecord, writeRecordOnce } from './records.js'

/** What is known of a run before it has a plan. */
export const runRequestSchema = z.object({
  id: z.string().transform((id) => id as RunId),
  createdAt: z.string(),
  /** Absolute path of the user's repository on the host; null when there is none. */
  repository: z.string().nullable(),
  /** Labels of the approaches, the baseline not among them. */
  labels: z.array(z.string()),
})
export type RunRequest = z.infer<typeof runRequestSchema>

const runStatusSchema = z.object({
  phase: runPhaseSchema,
  message: z.string(),
  error: errorRecordSchema.nullable(),
  at: z.string(),
})
/** Where a run is, since when, and why it failed if it did. */
export type RunStatus = z.infer<typeof runStatusSchema>

/** One run in a list. */
export interface RunSummary extends RunRequest {
  phase: RunPhase
  message: string
}

/** Records read at once: a home may hold thousands of runs. */
const READS_MAX = 32

const cancelSchema = z.object({ reason: z.string(), at: z.string() })
const tidiedSchema = z.object({ at: z.string() })
const attemptSchema = z.object({ attempt: z.number().int().positive() })

/** Why a trial's record was not taken: there is one already, or a later attempt has begun. */
export type StoreOutcome = { accepted: true } | { accepted: false; reason: 'stored' | 'superseded' }

/** Names one trial of a run. */
export interface TrialKey {
  run: RunId
  label: string
  repeat: number
}

const FINAL_PHASES: readonly RunPhase[] = ['completed', 'failed', 'cancelled', 'interrupted']

/** True for a phase a run does not leave unless it is taken up again. */
export function isFinalPhase(phase: RunPhase): boolean {
  return FINAL_PHASES.includes(phase)
}

/** Everything that lies in `runs/`. Methods that name a run reject with RUN_UNKNOWN when there is none. */
export class RunStore {
  /** Appends of this process, one after the other per run, so that events keep their order. */
  private readonly appends = new Map<RunId, Promise<unknown>>()

  constructor(private readonly paths: Paths, private readonly clock: Clock = systemClock) {}

  /** Makes the run's folder; its phase is `preparing`. */
  async createRun(request: RunRequest): Promise<void> {
    const folder = this.paths.runDirectory(request.id)
    await makeFolder(folder, 0o700)
    await appendFile(this.file(request.id, 'events.jsonl'), '', { mode: 0o600 })
    await writeRecord(this.file(request.id, 'state.json'), this.statusOf('preparing', ''))
    // Written last: a folder without a request is not a run.
    await writeRecord(this.file(request.id, 'request.json'), request)
  }

  async readRequest(run: RunId): Promise<RunRequest> {
    return (await readRecord(this.file(run, 'request.json'), runRequestSchema)) ?? unknownRun(run)
  }

  /** Stores the plan, once; @returns false when there was one. */
  async storePlan(plan: RunPlan): Promise<boolean> {
    await this.readRequest(plan.id as RunId)
    return writeRecordOnce(this.file(plan.id as RunId, 'plan.json'), plan)
  }

  /** Null while the run is still being prepared. */
  async readPlan(run: RunId): Promise<RunPlan | null> {
    await this.readRequest(run)
    return readRecord(this.file(run, 'plan.json'), runPlanSchema)
  }

  /** Every run, oldest first. */
  async listRuns(): Promise<RunSummary[]> {
    const ids = await listFolder(this.paths.runs) as RunId[]
    const limit = pLimit(READS_MAX)
    const summaries = await Promise.all(ids.filter((id) => !id.startsWith('.')).map((id) => limit(() => this.summarise(id))))
    return summaries.filter((summary) => summary !== null)
  }

  /**
   * Moves a run on and tells its followers. The first final phase wins: whoever comes later changes nothing.
   * Store the run document before a final phase.
   * @returns false when the run had ended already.
   */
  async setPhase(run: RunId, phase: RunPhase, message: string, error: ErrorRecord | null = null): Promise<boolean> {
    const status = this.statusOf(phase, message, error)
    if (isFinalPhase(phase)) {
      if (!await writeRecordOnce(this.file(run, 'end.json'), status)) return false
    } else {
      if (isFinalPhase((await this.readPhase(run)).phase)) return false
      await writeRecord(this.file(run, 'state.json'), status)
    }
    try {
      await this.appendEvent(run, { type: 'run-phase', phase, message })
      if (isFinalPhase(phase)) await this.appendEvent(run, { type: 'run-end', phase })
    } catch (error) {
      // An end that its followers never hear of is none: it can be told again.
      if (isFinalPhase(phase)) await rm(this.file(run, 'end.json'), { force: true })
      throw error
    }
    return true
  }

  async readPhase(run: RunId): Promise<RunStatus> {
    return (await readRecord(this.file(run, 'end.json'), runStatusSchema))
      ?? (await readRecord(this.file(run, 'state.json'), runStatusSchema))
      ?? unknownRun(run)
  }

  /** Takes an ended run up again: forgets its end, its document and the wish to cancel; keeps all evidence. */
  async reopenRun(run: RunId): Promise<void> {
    for (const name of ['tidied.json', 'run.json', 'cancel.json', 'end.json']) await rm(this.file(run, name), { force: true })
  }

  /** Remembers that what was made for an ended run is gone. */
  async noteTidied(run: RunId): Promise<void> {
    await writeRecord(this.file(run, 'tidied.json'), { at: this.now() })
  }

  /** False: machines, checkpoints or jobs of this run may be left. */
  async isTidied(run: RunId): Promise<boolean> {
    return await readRecord(this.file(run, 'tidied.json'), tidiedSchema) !== null
  }

  /** Adds an event to the run's log; safe from several processes. Calls of one process keep their order. */
  async appendEvent(run: RunId, event: NewRunEvent): Promise<void> {
    const previous = this.appends.get(run) ?? Promise.resolve()
    const append = previous.catch(() => undefined)
      .then(() => appendToLog(this.file(run, 'events.jsonl'), event, new Date(this.clock.now())))
    this.appends.set(run, append)
    try {
      await append
    } finally {
      if (this.appends.get(run) === append) this.appends.delete(run)
    }
  }

  /** The events after `fromSeq`; 0 for all. */
  async readEvents(run: RunId, fromSeq = 0): Promise<RunEvent[]> {
    await this.readRequest(run)
    return readLog(this.file(run, 'events.jsonl'), fromSeq)
  }

  /** The events after `fromSeq`, then each one as it comes; ends after `run-end` or when the signal fires. */
  async *followEvents(run: RunId, fromSeq: number, signal: AbortSignal): AsyncGenerator<RunEvent> {
    await this.readRequest(run)
    yield* followLog(this.file(run, 'events.jsonl'), fromSeq, signal)
  }

  /** The latest attempt that was begun for a trial, 0 for none. */
  async readAttempt(trial: TrialKey): Promise<number> {
    return (await readRecord(this.trialFile(trial, 'attempt.json'), attemptSchema))?.attempt ?? 0
  }

  /** Remembers that an attempt has begun: results of earlier ones are not accepted from here on. */
  async storeAttempt(trial: TrialKey, attempt: number): Promise<void> {
    if (attempt > await this.readAttempt(trial)) await writeRecord(this.trialFile(trial, 'attempt.json'), { attempt })
  }

  /** Stores the evidence of a trial. At most one record is ever accepted, and none of a superseded attempt. */
  async storeTrialRecord(run: RunId, record: TrialRecord): Promise<StoreOutcome> {
    const trial = { run, label: record.label, repeat: record.repeat }
    if (record.attempt < await this.readAttempt(trial)) return { accepted: false, reason: 'superseded' }
    const accepted = await writeRecordOnce(this.trialFile(trial, 'record.json'), record)
    return accepted ? { accepted } : { accepted, reason: 'stored' }
  }

  async readTrialRecord(trial: TrialKey): Promise<TrialRecord | null> {
    return readRecord(this.trialFile(trial, 'record.json'), trialRecordSchema)
  }

  /** Every record stored so far, the baseline's among them, by label and repeat. */
  async readTrialRecords(run: RunId): Promise<TrialRecord[]> {
    const folder = path.join(this.paths.runDirectory(run), 'trials')
    const records: TrialRecord[] = []
    for (const label of await listFolder(folder)) {
      const repeats = (await listFolder(path.join(folder, label))).map(Number).sort((a, b) => a - b)
      for (const repeat of repeats) {
        const record = await this.readTrialRecord({ run, label, repeat })
        if (record !== null) records.push(record)
      }
    }
    return records
  }

  async storeRunDocument(document: RunDocument): Promise<void> {
    await writeRecord(this.file(document.id as RunId, 'run.json'), document)
  }

  /** Null until the run was compared. */
  async readRunDocument(run: RunId): Promise<RunDocument | null> {
    await this.readRequest(run)
    return readRecord(this.file(run, 'run.json'), runDocumentSchema)
  }

  /** Removes a run and all its evidence. The folder goes out of sight at once, then its files. */
  async removeRun(run: RunId): Promise<void> {
    const doomed = path.join(this.paths.runs, `.removed-${run}`)
    await rename(this.paths.runDirectory(run), doomed).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error
      unknownRun(run)
    })
    await rm(doomed, { recursive: true, force: true })
  }

  /** Asks whoever works on a run to stop; the first reason stays. */
  async requestCancel(run: RunId, reason: string): Promise<void> {
    await this.readRequest(run)
    await writeRecordOnce(this.file(run, 'cancel.json'), { reason, at: this.now() })
  }

  /** The reason somebody gave for cancelling the run, or null. */
  async readCancelRequest(run: RunId): Promise<string | null> {
    return (await readRecord(this.file(run, 'cancel.json'), cancelSchema))?.reason ?? null
  }

  /** Waits until the run is to be cancelled; @returns the reason, or null when the signal fired first. */
  async waitForCancelRequest(run: RunId, signal: AbortSignal): Promise<string | null> {
    const watch = new FileWatch(this.paths.runDirectory(run), signal)
    try {
      while (await watch.next()) {
        const reason = await this.readCancelRequest(run)
        if (reason !== null) return reason
      }
      return null
    } finally {
      watch.close()
    }
  }

  private async summarise(run: RunId): Promise<RunSummary | null> {
    const request = await readRecord(this.file(run, 'request.json'), runRequestSchema)
    if (request === null) return null
    const { phase, message } = await this.readPhase(run)
    return { ...request, phase, message }
  }

  private statusOf(phase: RunPhase, message: string, error: ErrorRecord | null = null): RunStatus {
    return { phase, message, error: error === null ? null : errorRecordSchema.parse(error), at: this.now() }
  }

  private now(): string {
    return new Date(this.clock.now()).toISOString()
  }

  private file(run: RunId, name: string): string {
    return path.join(this.paths.runDirectory(run), name)
  }

  private trialFile(trial: TrialKey, name: string): string {
    return path.join(this.paths.trialDirectory(trial.run, trial.label, trial.repeat), name)
  }
}

function unknownRun(run: RunId): never {
  throw new Kosa8Error('RUN_UNKNOWN', `there is no run ${run}`, { hint: 'list them with: kosa8 runs' })
}
