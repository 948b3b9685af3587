/**
 * Test results as plain data: what one run of the tests said, and how it compares with the baseline.
 */
import { z } from 'zod'

/** `suite › name`, stable between runs. */
export const testNameSchema = z.string()

/** `other`: the runner said something that is neither (a warning, a program that was not found); counts in the total alone. */
export const testStatusSchema = z.enum(['passed', 'failed', 'errored', 'skipped', 'todo', 'other'])
export type TestStatus = z.infer<typeof testStatusSchema>

/** One leaf test of one run. */
export const testCaseSchema = z.object({
  name: testNameSchema,
  status: testStatusSchema,
  /** Milliseconds; null when the report does not say. */
  durationMs: z.number().nonnegative().nullable(),
  /** Bounded, control characters removed. */
  message: z.string().optional(),
})
export type TestCase = z.infer<typeof testCaseSchema>

/** Everything one run of the test command said. */
export const testRunSchema = z.object({
  /** parsed: machine-readable results were read; unparsed: the command ran, nothing could be read; none: no test command. */
  state: z.enum(['parsed', 'unparsed', 'none']),
  /** passed only if tests ran, all reports are complete, none failed and the exit status is 0. */
  verdict: z.enum(['passed', 'failed', 'noTests']),
  /** One sentence where verdict is not passed, e.g. "report cut off" or "killed by signal 9". */
  reason: z.string().nullable(),
  cases: z.array(testCaseSchema),
  /** Files, packages or programs that never got to their tests. */
  didNotRun: z.array(z.object({ name: z.string(), message: z.string() })),
  /** False when a report is cut off or a run ended before its plan. */
  complete: z.boolean(),
  exitCode: z.number().int().nullable(),
  signal: z.number().int().nullable(),
  timedOut: z.boolean(),
  warnings: z.array(z.string()),
  /** Report files that lay there before this run and were put aside. */
  staleReports: z.array(z.string()),
})
export type TestRun = z.infer<typeof testRunSchema>

/** Counts of a run; total counts leaf tests, todo counts as skipped, other in the total alone. */
export const testCountsSchema = z.object({
  total: z.number().int().nonnegative(),
  passed: z.number().int().nonnegative(),
  failed: z.number().int().nonnegative(),
  skipped: z.number().int().nonnegative(),
  errored: z.number().int().nonnegative(),
})
export type TestCounts = z.infer<typeof testCountsSchema>

/** The tests part of a trial in the result document. */
export const trialTestsSchema = testCountsSchema.extend({
  state: z.enum(['parsed', 'unparsed', 'none']),
  verdict: z.enum(['passed', 'failed', 'noTests']),
  reason: z.string().nullable(),
  complete: z.boolean(),
  didNotRun: z.array(z.object({ name: z.string(), message: z.string() })),
  fixed: z.array(testNameSchema),
  regressed: z.array(testNameSchema),
  stillFailing: z.array(testNameSchema),
  missing: z.array(testNameSchema),
  added: z.array(testNameSchema),
  /** Mixed outcomes over repeats of the same code. */
  flaky: z.array(testNameSchema),
  /** Paths of the baseline's test files that the approach changed or deleted. */
  tampered: z.array(z.string()),
  /** Counts of the run with the approach's own test files; present when some were put back. */
  own: testCountsSchema.optional(),
  warnings: z.array(z.string()),
  staleReports: z.array(z.string()),
})
export type TrialTests = z.infer<typeof trialTestsSchema>
