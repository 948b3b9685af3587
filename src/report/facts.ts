/**
 * What every report says of a trial, before it becomes one format.
 *
 * Owns: the order of rows, names of trials, and how counts, sizes and times are written.
 */
import type { RunDocument, TrialResult } from '../model/run.js'
import type { TestCounts } from '../model/tests.js'

/** Names shown of one list before "and n more". */
export const NAMES_SHOWN_MAX = 20

/** Trials as reports show them: best approach first, repeats ascending. */
export function trialsByRank(document: RunDocument): TrialResult[] {
  const place = (label: string): number => {
    const index = document.ranking.indexOf(label)
    return index === -1 ? document.ranking.length : index
  }
  return [...document.trials].sort((a, b) => place(a.label) - place(b.label) || a.repeat - b.repeat)
}

/** The label, with the number of the repeat where there are several. */
export function nameTrial(document: RunDocument, trial: Pick<TrialResult, 'label' | 'repeat'>): string {
  const hasRepeats = document.trials.some((other) => other.repeat > 1)
  return hasRepeats ? `${trial.label} #${trial.repeat}` : trial.label
}

/** Counts the tests an approach broke: regressed and missing. */
function countBroken({ tests }: TrialResult): number {
  return tests.regressed.length + tests.missing.length
}

/** `3/4`, with what was skipped; a dash where nothing ran. */
export function tellTests(tests: TestCounts & { state: string }): string {
  if (tests.state === 'none') return '–'
  if (tests.state === 'unparsed') return 'unparsed'
  const skipped = tests.skipped > 0 ? ` (${tests.skipped} skipped)` : ''
  return `${tests.passed}/${tests.total}${skipped}`
}

/** `+3 -1, 2 files`; a dash where there is no diff. */
export function tellDiff({ diff }: TrialResult): string {
  if (diff === null) return '–'
  if (diff.files === 0) return 'none'
  return `+${diff.insertions} -${diff.deletions}, ${diff.files} ${diff.files === 1 ? 'file' : 'files'}`
}

/** Figures of a trial, as every table shows them after its name and verdict. */
export function figuresOf(trial: TrialResult): string[] {
  const hasTests = trial.tests.state === 'parsed'
  return [
    tellTests(trial.tests),
    hasTests ? String(trial.tests.fixed.length) : '–', hasTests ? String(countBroken(trial)) : '–',
    tellDiff(trial), tellTime(trial.timingsMs), tellBytes(trial.memory.peakPrivateBytes),
  ]
}

/** The same figures of the baseline; what it cannot have is a dash. */
export function figuresOfBaseline({ tests, timingsMs }: NonNullable<RunDocument['baseline']>): string[] {
  return [tellTests(tests), '–', '–', '–', tellTime(timingsMs), '–']
}

/** Time a trial took, waiting for its turn not counted. */
function tellTime(timingsMs: Record<string, number>): string {
  const phases = Object.entries(timingsMs).filter(([phase]) => phase !== 'wait')
  if (phases.length === 0) return '–'
  return tellDuration(phases.reduce((sum, [, milliseconds]) => sum + milliseconds, 0))
}

/** `840 ms`, `12.3 s`, `4 min 5 s`. */
export function tellDuration(milliseconds: number): string {
  if (!Number.isFinite(milliseconds) || milliseconds < 0) return '–'
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`
  if (milliseconds < 60_000) return `${(milliseconds / 1000).toFixed(1)} s`
  const seconds = Math.round(milliseconds / 1000)
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`
}

/** `310 MiB`; a dash where it is not known. */
export function tellBytes(bytes: number | null): string {
  if (bytes === null || !Number.isFinite(bytes)) return '–'
  if (bytes < 1024) return `${bytes} B`
  const units = ['KiB', 'MiB', 'GiB', 'TiB']
  const power = Math.min(units.length, Math.floor(Math.log2(bytes) / 10))
  const amount = bytes / 1024 ** power
  return `${amount < 10 ? amount.toFixed(1) : Math.round(amount)} ${units[power - 1] ?? 'B'}`
}

/** At most `max` names, each made fit for its format, then how many more there are. */
export function listNames(
  names: readonly string[], show: (name: string) => string, max = NAMES_SHOWN_MAX,
): string[] {
  const shown = names.slice(0, max).map(show)
  return names.length > max ? [...shown, `and ${names.length - max} more`] : shown
}

/** Lists of test names worth telling, with the word for each. */
export function nameLists({ tests }: TrialResult): { title: string; names: string[] }[] {
  return [
    { title: 'fixed', names: tests.fixed },
    { title: 'broken', names: tests.regressed },
    { title: 'missing', names: tests.missing },
    { title: 'still failing', names: tests.stillFailing },
    { title: 'flaky', names: tests.flaky },
    { title: 'added', names: tests.added },
    { title: 'did not run', names: tests.didNotRun.map((entry) => entry.name) },
  ].filter((list) => list.names.length > 0)
}

/** Remarks of a trial that are no reasons: warnings of the readers, of the diff, and notes of the strategy. */
export function remarksOf(trial: TrialResult): string[] {
  const { tests, diff, notes, error } = trial
  return [
    ...(error === null ? [] : [`${error.code}: ${error.message}`]),
    ...notes,
    ...(diff?.notes ?? []),
    ...(diff?.conflicts ?? []).map((path) => `left in conflict: ${path}`),
    ...(diff?.omitted ?? []).map(({ path, bytes, reason }) => `not in the diff: ${path} (${tellBytes(bytes)}, ${reason})`),
    ...(hasReasonToTell(trial) ? [`tests: ${tests.reason}`] : []),
    ...tests.warnings.map((warning) => `tests: ${warning}`),
  ]
}

/** That tests failed is in the counts; what else the run has against it is worth a line. */
function hasReasonToTell({ tests }: TrialResult): boolean {
  if (tests.reason === null || tests.state === 'none') return false
  return !tests.complete || tests.didNotRun.length > 0 || tests.failed + tests.errored === 0
}

/** Paths that several approaches changed, with their labels, most shared first. */
export function findOverlaps(document: RunDocument): { path: string; labels: string[] }[] {
  const labelsByPath = new Map<string, Set<string>>()
  for (const trial of trialsByRank(document)) {
    for (const change of trial.diff?.changes ?? []) {
      const labels = labelsByPath.get(change.path) ?? new Set()
      labelsByPath.set(change.path, labels.add(trial.label))
    }
  }
  return [...labelsByPath].filter(([, labels]) => labels.size > 1)
    .map(([path, labels]) => ({ path, labels: [...labels] }))
    .sort((a, b) => b.labels.length - a.labels.length)
}
