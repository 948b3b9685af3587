/**
 * The comparison for a terminal: a table, the decision, the reasons.
 */
import type { RunDocument, TrialResult, Verdict } from '../model/run.js'
import {
  figuresOf, figuresOfBaseline, listNames, nameLists, nameTrial, remarksOf, trialsByRank,
} from './facts.js'
import type { ReportOptions } from './reporter.js'
import { layOutTable, paint, wrapText, type Cell } from './table.js'
import { makePathVisible, makeVisible } from './visible.js'

const COLUMNS_DEFAULT = 100
const COLUMNS_MIN = 40
const REMARKS_SHOWN_MAX = 8
/** SGR colours: green, default, red, yellow. */
const VERDICT_COLOUR: Record<Verdict, number> = { better: 32, same: 39, worse: 31, unscored: 33 }

/** Renders the document as a table with reasons below. */
export function renderText(document: RunDocument, options: ReportOptions = {}): string {
  const { colour = false, columns = COLUMNS_DEFAULT } = options
  const width = Math.max(COLUMNS_MIN, columns)
  const trials = trialsByRank(document)
  const rows = [heading(), ...baselineRow(document), ...trials.map((trial) => trialRow(document, trial))]
  const { error } = document
  const lines = [
    `run ${document.id}: ${document.state}`,
    '',
    ...layOutTable(rows, { columns: width, colour, right: [3, 4, 6, 7] }),
    '',
    paint(document.winner === null ? 'no winner' : `winner: ${makeVisible(document.winner)}`, 1, colour),
    ...document.reasons.flatMap((reason) => bullet(makeVisible(reason), width)),
    ...(error === null ? [] : bullet(makeVisible(`${error.code}: ${error.message}`), width)),
    ...trials.flatMap((trial) => trialSection(document, trial, width, colour)),
  ]
  return `${lines.join('\n')}\n`
}

function heading(): Cell[] {
  const words = ['approach', 'verdict', 'tests', 'fixed', 'broke', 'diff', 'time', 'memory', 'notes']
  return words.map((text) => ({ text }))
}

function baselineRow({ baseline }: RunDocument): Cell[][] {
  if (baseline === null) return []
  const { tests, error } = baseline
  const note = makeVisible(error === null ? tests.reason ?? '' : error.message)
  return [['baseline', '–', ...figuresOfBaseline(baseline), note].map((text) => ({ text }))]
}

function trialRow(document: RunDocument, trial: TrialResult): Cell[] {
  return [
    { text: makeVisible(nameTrial(document, trial)) },
    { text: trial.verdict, colour: VERDICT_COLOUR[trial.verdict] },
    ...figuresOf(trial).map((text) => ({ text })),
    { text: makeVisible(noteOf(trial)) },
  ]
}

/** The one remark that fits into a row. */
function noteOf({ state, tests, notes, error }: TrialResult): string {
  if (error !== null) return error.message
  if (tests.tampered.length > 0) return `edited tests: ${tests.tampered.join(', ')}`
  if (notes[0] !== undefined) return notes[0]
  return state === 'completed' ? '' : state
}

function trialSection(document: RunDocument, trial: TrialResult, width: number, colour: boolean): string[] {
  const title = `${makeVisible(nameTrial(document, trial))}: ${trial.verdict}`
  const remarks = listNames(remarksOf(trial), (remark) => makeVisible(remark), REMARKS_SHOWN_MAX)
  return [
    '',
    paint(title, VERDICT_COLOUR[trial.verdict], colour),
    ...trial.reasons.flatMap((reason) => bullet(makeVisible(reason), width)),
    ...nameLists(trial).flatMap(({ title: word, names }) => [
      `  ${word}:`, ...listNames(names, (name) => makeVisible(name)).map((name) => `    ${name}`),
    ]),
    ...(trial.tests.tampered.length === 0 ? [] : [
      '  test files edited:', ...listNames(trial.tests.tampered, makePathVisible).map((path) => `    ${path}`),
    ]),
    ...changedFiles(trial),
    ...(remarks.length === 0 ? [] : ['  remarks:', ...remarks.flatMap((remark) => bullet(remark, width))]),
  ]
}

function changedFiles({ diff }: TrialResult): string[] {
  if (diff === null || diff.changes.length === 0) return []
  const lines = listNames(diff.changes.map((change) => {
    const from = change.oldPath === undefined ? '' : `${makePathVisible(change.oldPath)} -> `
    return `${change.status} ${from}${makePathVisible(change.path)}`
  }), (line) => line)
  return ['  files:', ...lines.map((line) => `    ${line}`)]
}

function bullet(text: string, width: number): string[] {
  return wrapText(text, width - 4).map((line, index) => `${index === 0 ? '  - ' : '    '}${line}`)
}
