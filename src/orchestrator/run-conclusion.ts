/**
 * The end of a run: from the stored evidence to the result document and the report.
 *
 * Owns: putting the document together, also for a run that was cut short. Judgement is `compare`'s,
 * rendering is `report`'s. Called by the compare worker, and by the daemon for runs that end otherwise.
 */
import path from 'node:path'
import { compareRun } from '../compare/compare-run.js'
import type { ErrorRecord } from '../errors/kosa8-error.js'
import { BASELINE_LABEL, trialIdOf, type RunId } from '../model/ids.js'
import { RUN_SCHEMA, type RunDocument, type RunPlan, type TrialRecord, type TrialState } from '../model/run.js'
import { decideKept } from './keep-clone.js'
import { renderReport } from '../report/registry.js'
import type { Paths } from '../store/paths.js'
import type { RunStore } from '../store/run-store.js'
import { writeFileAtomic } from '../util/atomic-write.js'
import type { Clock } from '../util/clock.js'

/** What a conclusion works with. */
export interface ConclusionParts {
  runs: RunStore
  paths: Paths
  clock: Clock
}

/** How the run ended, and why if it did not complete. */
export interface RunEnd {
  state: RunDocument['state']
  message: string
  error: ErrorRecord | null
}

/**
 * Stores the result document and the Markdown report, then the final phase. Safe to repeat: the first
 * final phase stands, and the document of the same evidence is the same.
 */
export async function concludeRun(parts: ConclusionParts, run: RunId, end: RunEnd): Promise<RunDocument> {
  const document = await buildDocument(parts, run, end)
  await parts.runs.storeRunDocument(document)
  await writeFileAtomic(path.join(document.dir, 'report.md'), renderReport('md', document))
  await parts.runs.setPhase(run, end.state, end.message, end.error)
  return document
}

async function buildDocument(parts: ConclusionParts, run: RunId, end: RunEnd): Promise<RunDocument> {
  const { runs, paths, clock } = parts
  const request = await runs.readRequest(run)
  const plan = await runs.readPlan(run)
  const head = {
    schema: RUN_SCHEMA, id: run, dir: paths.runDirectory(run), state: end.state, createdAt: request.createdAt,
    endedAt: new Date(clock.now()).toISOString(), repository: request.repository ?? '', error: end.error,
  } as const
  if (plan === null) {
    return {
      ...head, sandbox: '', checkpoint: null, base: null, baseline: null, trials: [], ranking: [], winner: null,
      reasons: [end.message],
    }
  }
  const records = await runs.readTrialRecords(run)
  const stored = new Map(records.map((record) => [record.trial, record]))
  const trials = plannedTrials(plan).map((planned) => stored.get(planned.trial) ?? absentRecord(planned, end))
  const baseline = records.filter((record) => record.label === BASELINE_LABEL)
  const comparison = compareRun(plan, baseline, trials)
  const reasons = [...plan.notes, ...comparison.reasons, ...describeKept(plan, trials, comparison.winner)]
  return {
    ...head, sandbox: plan.sandbox, checkpoint: plan.checkpoint, base: plan.base,
    ...comparison,
    reasons: end.state === 'completed' ? reasons : [end.message, ...reasons],
  }
}

/** Where the machines of kept trials are found. */
function describeKept(plan: RunPlan, trials: TrialRecord[], winner: string | null): string[] {
  const stored = trials.filter(({ state }) => state !== 'cancelled' && state !== 'error')
  return decideKept(plan, { trials: stored, winner }).filter(({ isKept }) => isKept)
    .map(({ name, label, repeat }) => `the machine of ${label}/${repeat} is kept as sandbox ${name}`)
}

type PlannedTrial = Pick<TrialRecord, 'trial' | 'approach' | 'label' | 'repeat' | 'parameters'>

/** Every trial of a plan in the order of the document, the baseline not among them. */
function plannedTrials(plan: RunPlan): PlannedTrial[] {
  return plan.approaches.flatMap(({ approach, label, parameters }) =>
    Array.from({ length: plan.repeats }, (_, index) => ({
      trial: trialIdOf(plan.id as RunId, label, index + 1), approach, label, repeat: index + 1, parameters,
    })))
}

/** A trial nobody finished: it has no evidence, and that is said. */
function absentRecord(planned: PlannedTrial, end: RunEnd): TrialRecord {
  const wasStopped = end.state === 'cancelled' || end.state === 'interrupted'
  const state: TrialState = wasStopped ? 'cancelled' : 'error'
  const error = wasStopped ? null : end.error ?? { code: 'INTERNAL', message: 'the trial left no result' }
  return {
    ...planned, attempt: 1, state, diff: null, tests: null, ownTests: null, tampered: [], exitCode: null,
    timingsMs: {}, memory: { reservedBytes: null, peakPrivateBytes: null },
    usage: { cpuMs: null, inputTokens: null, outputTokens: null, costUsd: null },
    notes: [], log: null, error,
  }
}
