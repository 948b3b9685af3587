/**
 * What a trial changed, as plain data.
 */
import { z } from 'zod'

/** One changed path against the base. Status letters as in `git diff --name-status`. */
export const fileChangeSchema = z.object({
  status: z.enum(['A', 'M', 'D', 'T', 'R']),
  /** Exact path; bytes that are not UTF-8 are shown as \xNN. */
  path: z.string(),
  /** Former path of a rename. */
  oldPath: z.string().optional(),
  /** Git modes, e.g. "100644"; null where the file did not exist. */
  oldMode: z.string().nullable(),
  newMode: z.string().nullable(),
  /** Lines; null for a binary file. */
  insertions: z.number().int().nullable(),
  deletions: z.number().int().nullable(),
  /** Of the changed lines, how many differ by their line ending only; 0 is left out. */
  endingOnly: z.number().int().optional(),
  /** Sizes in bytes of a binary file before and after. */
  oldBytes: z.number().int().optional(),
  newBytes: z.number().int().optional(),
})
export type FileChange = z.infer<typeof fileChangeSchema>

/** A path that is not in the diff, with its size and why. */
export const omittedPathSchema = z.object({
  path: z.string(),
  bytes: z.number().int().nonnegative(),
  reason: z.string(),
})
export type OmittedPath = z.infer<typeof omittedPathSchema>

/** The diff of one trial against the run's base. */
export const trialDiffSchema = z.object({
  /** Number of changed paths. */
  files: z.number().int().nonnegative(),
  insertions: z.number().int().nonnegative(),
  deletions: z.number().int().nonnegative(),
  /** Object id of the resulting tree. */
  tree: z.string(),
  /** Result commit on top of the base, and the ref that holds it. */
  commit: z.string(),
  ref: z.string(),
  /** Path of the patch, relative to the run's folder; binary data included. */
  patch: z.string(),
  changes: z.array(fileChangeSchema),
  omitted: z.array(omittedPathSchema),
  /** Remarks such as "nested repository at web/" or "merge in progress". */
  notes: z.array(z.string()),
  /** Paths left in conflict by an unfinished merge, rebase or cherry-pick. */
  conflicts: z.array(z.string()),
})
export type TrialDiff = z.infer<typeof trialDiffSchema>
