/**
 * A run in the size an agent can read: what the result document says, with long lists cut.
 *
 * Owns: what of the document is told. Pure; adds no judgement. The whole document stays in the run's folder.
 */
import type { RunDocument, TrialResult } from '../model/run.js'
import { shorten } from './bounded-text.js'

/** Names told over all trials of a run; each trial has its share. */
const NAMES_MAX = 600
/** Names told of one list. */
const LIST_MAX = 20
/** Longest name or reason, in characters. */
const TEXT_LENGTH_MAX = 300
/** Lists of names that a trial has. */
const LISTS = ['fixed', 'regressed', 'stillFailing', 'missing', 'added', 'tampered'] as const

/** The document in short. `wholeDocument` says where the rest is. */
export function summariseRun(document: RunDocument): Record<string, unknown> {
  const namesPerList = Math.max(1, Math.min(LIST_MAX, Math.floor(NAMES_MAX / (LISTS.length * Math.max(1, document.trials.length)))))
  const { id, state, sandbox, checkpoint, base, baseline, ranking, winner, reasons, error, dir } = document
  return {
    run: id, state, winner, ranking, reasons: cutList(reasons, LIST_MAX), error: shortError(error), sandbox, checkpoint, base,
    baseline: baseline === null ? null : { ...countsOf(baseline.tests), failing: cutList(baseline.tests.failing, LIST_MAX), error: shortError(baseline.error) },
    trials: document.trials.map((trial) => summariseTrial(trial, namesPerList)),
    wholeDocument: `${dir}/run.json`,
  }
}

/** One trial in short. @param namesPerList names told of each list of tests */
export function summariseTrial(trial: TrialResult, namesPerList: number): Record<string, unknown> {
  const { approach, label, repeat, parameters, state, verdict, reasons, diff, tests, exitCode, notes, error } = trial
  return {
    approach, label, repeat, parameters: shortParameters(parameters), state, verdict, exitCode,
    reasons: cutList(reasons, namesPerList), notes: cutList(notes, namesPerList), error: shortError(error),
    diff: diff === null ? null : {
      files: diff.files, insertions: diff.insertions, deletions: diff.deletions, commit: diff.commit, ref: diff.ref,
      changes: cutList(diff.changes.map(({ status, path }) => `${status} ${path}`), namesPerList), omittedPaths: diff.omitted.length,
    },
    tests: { ...countsOf(tests), ...Object.fromEntries(LISTS.map((list) => [list, cutList(tests[list], namesPerList)])) },
  }
}

function countsOf({ state, verdict, reason, total, passed, failed, skipped, errored }: TrialResult['tests'] | NonNullable<RunDocument['baseline']>['tests']) {
  return { state, verdict, reason, total, passed, failed, skipped, errored }
}

/** Scripts and patches are parameters too. */
function shortParameters(parameters: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(parameters).slice(0, LIST_MAX).map(([name, value]) => {
    const text = typeof value === 'string' ? value : JSON.stringify(value) ?? ''
    return [name, text.length <= TEXT_LENGTH_MAX ? value : shorten(text, TEXT_LENGTH_MAX)]
  }))
}

/** The beginning of a list, its last entry saying how many are left out. */
function cutList(texts: string[], max: number): string[] {
  const shown = texts.slice(0, max).map((text) => shorten(text, TEXT_LENGTH_MAX))
  return shown.length === texts.length ? shown : [...shown, `… and ${texts.length - shown.length} more`]
}

function shortError(error: RunDocument['error']): { code: string; message: string; hint?: string } | null {
  if (error === null) return null
  const { code, message, hint } = error
  return { code, message: shorten(message, 2 * TEXT_LENGTH_MAX), ...(hint === undefined ? {} : { hint: shorten(hint, TEXT_LENGTH_MAX) }) }
}
