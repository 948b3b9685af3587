/**
 * What crosses the wire about runs.
 *
 * Owns: the request that starts a run and the answers about one. The plan, the result document and
 * the events themselves are the model's.
 */
import { z } from 'zod'
import {
  approachPlanSchema, keepSchema, runDocumentSchema, runPhaseSchema, runPlanSchema,
  testPlanSchema, trialPhaseSchema, trialStateSchema,
} from '../model/run.js'
import { sandboxNameSchema } from '../model/ids.js'
import { machineRequestSchema } from './sandboxes.js'

/** Most trials of one run, the baseline's not counted. */
export const TRIALS_MAX = 256
/** Longest time limit of one trial or test run: a week. */
export const TIMEOUT_MS_MAX = 7 * 24 * 3600 * 1000
/** Largest request to start a run, in bytes: scripts and patches travel in it. */
export const RUN_REQUEST_BYTES_MAX = 32 * 1024 * 1024

export const runIdSchema = z.string().regex(/^r[0-9]{8}-[0-9]{6}-[0-9a-f]{8}$/, 'not the id of a run')

const timeoutSchema = z.number().int().min(1).max(TIMEOUT_MS_MAX)

/** Everything the daemon needs to prepare and start a run; approaches are resolved by the client. */
export const runRequestSchema = z.strictObject({
  /** Absolute path of the repository on the host. */
  repository: z.string().max(4096).startsWith('/', 'give an absolute path'),
  approaches: z.array(approachPlanSchema.strict()).min(1).max(TRIALS_MAX),
  /** Fork this live sandbox; null: make one for the run. */
  sandbox: sandboxNameSchema.nullable(),
  /** Id or label of one of the sandbox's checkpoints; null: take one in place. Needs `sandbox`. */
  from: z.string().min(1).max(200).nullable(),
  /** What the run's own sandbox is made like; null with `sandbox`. */
  machine: machineRequestSchema.nullable(),
  /** Shell command, run once in the workspace before the checkpoint. */
  setup: z.string().max(65536).nullable(),
  test: testPlanSchema.extend({ timeoutMs: timeoutSchema }).strict().nullable(),
  repeats: z.number().int().min(1).max(100),
  /** Trials at once; null: as many as memory allows. */
  parallel: z.number().int().min(1).max(TRIALS_MAX).nullable(),
  /** Limit of one trial's strategy. */
  timeoutMs: timeoutSchema,
  keep: keepSchema,
  /** True: uncommitted and untracked files belong to the base. */
  includeUncommitted: z.boolean(),
}).refine((request) => request.from === null || request.sandbox !== null, 'from needs a sandbox')
  .refine((request) => (request.machine === null) === (request.sandbox !== null), 'give either a sandbox or a machine')
export type RunRequest = z.infer<typeof runRequestSchema>

export const runStartedSchema = z.object({ id: z.string() })

/** One line of `kosa8 runs ls`. */
export const runSummarySchema = z.object({
  id: z.string(),
  createdAt: z.string(),
  phase: runPhaseSchema,
  repository: z.string(),
  sandbox: z.string().nullable(),
  approaches: z.array(z.string()),
  winner: z.string().nullable(),
})
export type RunSummary = z.infer<typeof runSummarySchema>

/** Where one trial of a run is now. */
export const trialStatusSchema = z.object({
  label: z.string(),
  repeat: z.number(),
  phase: trialPhaseSchema,
  message: z.string(),
  state: trialStateSchema.nullable(),
})
export type TrialStatus = z.infer<typeof trialStatusSchema>

/** Where a run is now. */
export const runStatusSchema = z.object({
  id: z.string(),
  phase: runPhaseSchema,
  /** Null until the checkpoint has been taken. */
  plan: runPlanSchema.nullable(),
  trials: z.array(trialStatusSchema),
  /** The result document; null until the run has ended. */
  document: runDocumentSchema.nullable(),
})
export type RunStatus = z.infer<typeof runStatusSchema>

export const cancelRunSchema = z.strictObject({
  reason: z.string().max(500),
  /** cancelled: a person asked; interrupted: a signal or shutdown. */
  as: z.enum(['cancelled', 'interrupted']),
})
export type CancelRunRequest = z.infer<typeof cancelRunSchema>

export const runEventsQuerySchema = z.strictObject({
  /** First sequence number wanted; events before it are skipped. */
  from: z.coerce.number().int().min(0).optional(),
})

/** A trial by its approach label, or by `label/repeat`. */
export const trialSelectorSchema = z.string().min(1).max(300)

export const diffQuerySchema = z.strictObject({
  a: trialSelectorSchema,
  /** Absent: against the base. */
  b: trialSelectorSchema.optional(),
})

export const applyRunSchema = z.strictObject({
  approach: trialSelectorSchema,
  /** Branch to make; chosen by the daemon when absent. */
  branch: z.string().min(1).max(200).optional(),
})
export type ApplyRunRequest = z.infer<typeof applyRunSchema>

export const appliedSchema = z.object({
  branch: z.string(),
  commit: z.string(),
  /** Changed paths. */
  files: z.number(),
})
export type AppliedApproach = z.infer<typeof appliedSchema>
