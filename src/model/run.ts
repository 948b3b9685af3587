/**
 * A run: one question (a checkpoint, a baseline, several approaches) and its result document.
 *
 * Owns: the plan a run is made from and the document `kosa8.run/1` it ends in. Pure data; the
 * orchestrator moves it forward, the store keeps it, reports render it.
 */
import { z } from 'zod'
import { trialDiffSchema } from './diff.js'
import { testCountsSchema, testRunSchema, trialTestsSchema } from './tests.js'

export const RUN_SCHEMA = 'kosa8.run/1'

/** How a strategy of a plan is found again by a worker. */
export const strategyReferenceSchema = z.discriminatedUnion('kind', [
  /** A module of `strategies/`, by name. */
  z.object({ kind: z.literal('builtin'), name: z.string() }),
  /** The user's own module on the host, by absolute path. */
  z.object({ kind: z.literal('module'), path: z.string() }),
])
export type StrategyReference = z.infer<typeof strategyReferenceSchema>

/** One approach with one set of matrix values. */
export const approachPlanSchema = z.object({
  /** Name as the user gave it. */
  approach: z.string(),
  /** Unique in the run; the name, with matrix values as `name@key=value,…`. Safe in paths and refs. */
  label: z.string(),
  strategy: strategyReferenceSchema,
  parameters: z.record(z.string(), z.unknown()),
})
export type ApproachPlan = z.infer<typeof approachPlanSchema>

/** The test command of a run. */
export const testPlanSchema = z.object({
  /** Shell command, run in the workspace of a clone. */
  run: z.string(),
  /** Globs of report files, relative to the workspace; empty: standard output is read. */
  results: z.array(z.string()),
  timeoutMs: z.number().int().positive(),
  /** Further globs of test files, beside the usual names. */
  files: z.array(z.string()),
})
export type TestPlan = z.infer<typeof testPlanSchema>

/** Commit and tree of the repository at the checkpoint. */
export const baseSchema = z.object({ commit: z.string(), tree: z.string() })
export type Base = z.infer<typeof baseSchema>

export const keepSchema = z.enum(['none', 'winner', 'all'])

/** What a run is going to do; written once, before the first trial is queued. */
export const runPlanSchema = z.object({
  id: z.string(),
  createdAt: z.string(),
  /** Absolute path of the user's repository on the host. */
  repository: z.string(),
  sandbox: z.string(),
  /** True when the sandbox was made for this run and goes away with it. */
  sandboxIsOwned: z.boolean(),
  checkpoint: z.object({ id: z.string(), label: z.string().nullable(), pauseMs: z.number().nullable() }),
  base: baseSchema,
  /** What its machines may reach, as a rule's normal form. */
  egress: z.string().default('deny'),
  approaches: z.array(approachPlanSchema).min(1),
  repeats: z.number().int().min(1).max(100),
  /** Trials at once; null: as many as memory allows. */
  parallel: z.number().int().positive().nullable(),
  /** Limit of one trial's strategy. */
  timeoutMs: z.number().int().positive(),
  test: testPlanSchema.nullable(),
  keep: keepSchema,
  /** Remarks about the run as a whole, e.g. that history was uploaded shallow. */
  notes: z.array(z.string()),
})
export type RunPlan = z.infer<typeof runPlanSchema>

export const trialStateSchema = z.enum(['completed', 'failed', 'timedOut', 'cancelled', 'error'])
export type TrialState = z.infer<typeof trialStateSchema>

export const verdictSchema = z.enum(['better', 'same', 'worse', 'unscored'])
export type Verdict = z.infer<typeof verdictSchema>

export const errorRecordSchema = z.object({
  code: z.string(),
  message: z.string(),
  hint: z.string().optional(),
  details: z.record(z.string(), z.unknown()).optional(),
})

const usageSchema = z.object({
  cpuMs: z.number().nullable(),
  inputTokens: z.number().nullable(),
  outputTokens: z.number().nullable(),
  costUsd: z.number().nullable(),
})

/** What the record of a trial and its entry in the result document have in common. */
const trialFactsSchema = z.object({
  approach: z.string(),
  label: z.string(),
  repeat: z.number().int().positive(),
  parameters: z.record(z.string(), z.unknown()),
  state: trialStateSchema,
  diff: trialDiffSchema.nullable(),
  exitCode: z.number().int().nullable(),
  /** Milliseconds per phase: wait, clone, identity, strategy, diff, tests. Not the clone's end: this is durable before it. */
  timingsMs: z.record(z.string(), z.number()),
  memory: z.object({ reservedBytes: z.number().nullable(), peakPrivateBytes: z.number().nullable() }),
  usage: usageSchema,
  /** Remarks for the report: "asked for input", "ended without changes", "stopped: limit", left processes. */
  notes: z.array(z.string()),
  /** Path of the log, relative to the run's folder. */
  log: z.string().nullable(),
  error: errorRecordSchema.nullable(),
})

/**
 * What a worker stores of one trial: the evidence, without judgement. The baseline is stored in the
 * same form. Written once; the fencing token says which attempt it came from.
 */
export const trialRecordSchema = trialFactsSchema.extend({
  trial: z.string(),
  attempt: z.number().int().positive(),
  /** The deciding run of the tests: with the baseline's test files put back. Null: never got there. */
  tests: testRunSchema.nullable(),
  /** The run with the approach's own test files, when some had to be put back. */
  ownTests: testRunSchema.nullable(),
  tampered: z.array(z.string()),
})
export type TrialRecord = z.infer<typeof trialRecordSchema>

/** One trial in the result document: the facts with the verdict of the comparison. */
export const trialResultSchema = trialFactsSchema.extend({
  verdict: verdictSchema,
  reasons: z.array(z.string()),
  tests: trialTestsSchema,
})
export type TrialResult = z.infer<typeof trialResultSchema>

/** Tests of the baseline in the result document. */
export const baselineTestsSchema = testCountsSchema.extend({
  state: z.enum(['parsed', 'unparsed', 'none']),
  verdict: z.enum(['passed', 'failed', 'noTests']),
  reason: z.string().nullable(),
  failing: z.array(z.string()),
  flaky: z.array(z.string()),
  warnings: z.array(z.string()),
})

export const runStateSchema = z.enum(['completed', 'failed', 'cancelled', 'interrupted'])

/** The result document, `kosa8.run/1`. */
export const runDocumentSchema = z.object({
  schema: z.literal(RUN_SCHEMA),
  id: z.string(),
  /** Absolute path of the run's folder; every other path in the document is relative to it. */
  dir: z.string(),
  state: runStateSchema,
  createdAt: z.string(),
  endedAt: z.string(),
  repository: z.string(),
  sandbox: z.string(),
  checkpoint: z.object({ id: z.string(), label: z.string().nullable(), pauseMs: z.number().nullable() }).nullable(),
  base: baseSchema.nullable(),
  baseline: z.object({ tests: baselineTestsSchema, timingsMs: z.record(z.string(), z.number()), error: errorRecordSchema.nullable() }).nullable(),
  trials: z.array(trialResultSchema),
  /** Approach labels, best first. */
  ranking: z.array(z.string()),
  winner: z.string().nullable(),
  reasons: z.array(z.string()),
  error: errorRecordSchema.nullable(),
})
export type RunDocument = z.infer<typeof runDocumentSchema>

/** Where a run is now; `phase` of a run that has ended is its final state. */
export const runPhaseSchema = z.enum([
  'preparing', 'running', 'comparing', 'completed', 'failed', 'cancelled', 'interrupted',
])
export type RunPhase = z.infer<typeof runPhaseSchema>

/** Where one trial is now, for progress displays. */
export const trialPhaseSchema = z.enum([
  'queued', 'waiting', 'cloning', 'strategy', 'collecting', 'testing', 'done',
])
export type TrialPhase = z.infer<typeof trialPhaseSchema>

/** One line of a run's event log; events are noun-verb and replayable from `seq`. */
export const runEventSchema = z.discriminatedUnion('type', [
  z.object({ seq: z.number(), at: z.string(), type: z.literal('run-phase'), phase: runPhaseSchema, message: z.string() }),
  z.object({ seq: z.number(), at: z.string(), type: z.literal('trial-phase'), label: z.string(), repeat: z.number(), phase: trialPhaseSchema, message: z.string() }),
  z.object({ seq: z.number(), at: z.string(), type: z.literal('trial-output'), label: z.string(), repeat: z.number(), stream: z.enum(['stdout', 'stderr', 'log']), text: z.string() }),
  z.object({ seq: z.number(), at: z.string(), type: z.literal('trial-end'), label: z.string(), repeat: z.number(), state: trialStateSchema, summary: z.string() }),
  z.object({ seq: z.number(), at: z.string(), type: z.literal('run-end'), phase: runPhaseSchema }),
])
export type RunEvent = z.infer<typeof runEventSchema>
