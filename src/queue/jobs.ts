/**
 * What lies in the queue: names, ids and payloads of jobs.
 *
 * Payloads are ids, checked when read: another version of kosa8 may have written them.
 */
import type { JobsOptions } from 'bullmq'
import { z } from 'zod'
import type { RunId, TrialId } from '../model/ids.js'

/** One queue per kind of work. */
export const TRIAL_QUEUE = 'trials'
export const COMPARE_QUEUE = 'compare'

/** How often a trial is begun because of errors of the infrastructure; deaths of its worker count apart. */
export const ATTEMPTS_MAX = 3

/** How often work may be taken from a dead or busy worker; restarts of the host count too, so it is generous. */
export const STALLED_MAX = 10

/** Ended jobs are kept to tell "done" from "never heard of"; longer than any run takes. */
const KEEP_ENDED = { age: 7 * 24 * 3600 }

export const trialPayloadSchema = z.object({
  run: z.string().transform((id) => id as RunId),
  trial: z.string().transform((id) => id as TrialId),
  label: z.string(),
  repeat: z.number().int().positive(),
  isBaseline: z.boolean(),
})

export const comparePayloadSchema = z.object({ run: z.string().transform((id) => id as RunId) })

/** BullMQ takes no colon in an id, and labels may hold anything a matrix value holds. */
export function jobIdOf(id: RunId | TrialId): string {
  return encodeURIComponent(id)
}

/** A child that fails for good must not keep its parent from comparing what there is. */
export function trialOptions(trial: TrialId): JobsOptions {
  return { ...commonOptions(jobIdOf(trial)), ignoreDependencyOnFailure: true }
}

export function compareOptions(run: RunId): JobsOptions {
  return commonOptions(jobIdOf(run))
}

function commonOptions(jobId: string): JobsOptions {
  return { jobId, attempts: ATTEMPTS_MAX, removeOnComplete: KEEP_ENDED, removeOnFail: KEEP_ENDED, stackTraceLimit: 1 }
}
