/**
 * The comparison as one HTML page: no scripts, nothing loaded, approaches side by side.
 *
 * Owns: layout. Everything from the guest is escaped; patches are shown as text, one fold per file.
 */
import type { RunDocument, TrialResult } from '../model/run.js'
import {
  figuresOf, figuresOfBaseline, findOverlaps, listNames, nameLists, nameTrial, remarksOf, tellDiff, trialsByRank,
} from './facts.js'
import { HTML_STYLE } from './html-style.js'
import { splitPatch, type PatchFile } from './patch-files.js'
import type { ReportOptions } from './reporter.js'
import { escapeHtml, makeLinesVisible, makeVisible } from './visible.js'

const FILES_SHOWN_MAX = 200
const FILE_LINES_MAX = 1000
/** Lines of patches in the whole page; beyond, files are named only. */
const PAGE_LINES_MAX = 20_000
const REMARKS_SHOWN_MAX = 20

/** Renders the document as a page; `patches` are shown where given. */
export function renderHtml(document: RunDocument, { patches = {} }: ReportOptions = {}): string {
  const trials = trialsByRank(document)
  const budget = { lines: PAGE_LINES_MAX }
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>kosa8 ${escapeHtml(document.id)}</title><style>${HTML_STYLE}</style></head><body>
<header><h1>${headline(document)}</h1><p class="soft">Run ${code(document.id)}${baseOf(document)}</p>
${list([...document.reasons, ...(document.error === null ? [] : [document.error.message])].map(plain))}</header>
${table(document, trials)}
<h2>Approaches</h2><div class="columns">
${trials.map((trial) => card(document, trial, patches, budget)).join('\n')}
</div>
${overlaps(document)}
</body></html>
`
}

function headline({ winner, state }: RunDocument): string {
  if (winner !== null) return `${code(winner)} wins`
  return state === 'completed' ? 'No winner' : `Run ${escapeHtml(state)}`
}

function baseOf({ base }: RunDocument): string {
  return base === null ? '' : `, base ${code(base.commit.slice(0, 12))}`
}

function table(document: RunDocument, trials: TrialResult[]): string {
  const head = ['approach', 'verdict', 'tests passed', 'fixed', 'broke', 'diff', 'time', 'memory']
  const isNumber = (column: number): boolean => [3, 4, 6, 7].includes(column)
  const cell = (tag: string, html: string, column: number): string =>
    `<${tag}${isNumber(column) ? ' class="number"' : ''}>${html}</${tag}>`
  const row = (tag: string, cells: string[]): string =>
    `<tr>${cells.map((html, column) => cell(tag, html, column)).join('')}</tr>`
  const rows = trials.map((trial) => [code(nameTrial(document, trial)), tellVerdict(trial), ...figuresOf(trial)])
  const { baseline } = document
  if (baseline !== null) rows.push(['baseline', '–', ...figuresOfBaseline(baseline)])
  const body = rows.map((cells) => row('td', cells)).join('\n')
  return `<table><thead>${row('th', head)}</thead><tbody>\n${body}\n</tbody></table>`
}

function tellVerdict({ verdict }: TrialResult): string {
  return `<span class="${verdict}">${verdict}</span>`
}

/** Lines of patches that may still be shown in the page. */
interface Budget {
  lines: number
}

function card(document: RunDocument, trial: TrialResult, patches: Record<string, string>, budget: Budget): string {
  const isWinner = document.winner === trial.label
  const { tests, diff } = trial
  const title = `${code(nameTrial(document, trial))} ${tellVerdict(trial)}`
  const own = tests.own === undefined ? '' : `<p>With its own test files ${tests.own.passed} of ${tests.own.total} pass, `
    + `with the original ones ${tests.passed} of ${tests.total}.</p>`
  return `<section class="card${isWinner ? ' winner' : ''}"><h3>${title}</h3>
${list(trial.reasons.map(plain))}
${nameLists(trial).map((names) => titled(`Tests ${names.title}`, listNames(names.names, code))).join('')}
${titled('Test files edited', listNames(tests.tampered, code))}${own}
${titled('Remarks', listNames(remarksOf(trial), plain, REMARKS_SHOWN_MAX))}
${diff === null ? '' : `<h4>Changes: ${tellDiff(trial)}</h4>${changes(diff, textOf(patches, diff.patch), budget)}`}
</section>`
}

function textOf(patches: Record<string, string>, path: string): string | undefined {
  return Object.hasOwn(patches, path) ? patches[path] : undefined
}

type Diff = NonNullable<TrialResult['diff']>

function changes(diff: Diff, patch: string | undefined, budget: Budget): string {
  const parts = patch === undefined ? [] : splitPatch(patch, FILE_LINES_MAX)
  // Both are in git's order; where the counts differ, the patch's own words are the title.
  const isAligned = parts.length === diff.changes.length
  if (patch === undefined || !isAligned) {
    const names = diff.changes.map((change) => `${change.status} ${code(change.path)}`)
    const folds = parts.slice(0, FILES_SHOWN_MAX).map((part) => fold(code(part.header), part, budget))
    return list(listNames(names, (html) => html, FILES_SHOWN_MAX)) + folds.join('\n')
  }
  const folds = diff.changes.slice(0, FILES_SHOWN_MAX).map((change, index) => {
    const part = parts[index] ?? { header: '', lines: [], omittedLines: 0 }
    const from = change.oldPath === undefined ? '' : `${code(change.oldPath)} → `
    const counts = change.insertions === null ? 'binary' : `+${change.insertions} −${change.deletions ?? 0}`
    return fold(`${change.status} ${from}${code(change.path)} <span class="soft">${counts}</span>`, part, budget)
  })
  const hidden = diff.changes.length - FILES_SHOWN_MAX
  if (hidden > 0) folds.push(`<p>and ${hidden} more files</p>`)
  return folds.join('\n')
}

function fold(title: string, { lines, omittedLines }: PatchFile, budget: Budget): string {
  const shown = lines.slice(0, Math.max(0, budget.lines))
  budget.lines -= shown.length
  const hidden = omittedLines + lines.length - shown.length
  const rest = hidden === 0 ? '' : `<span class="hunk">… ${hidden} more lines</span>`
  const isShort = shown.length <= 60 ? ' open' : ''
  return `<details${isShort}><summary>${title}</summary><pre>${shown.map(line).join('')}${rest}</pre></details>`
}

function line(text: string): string {
  const kind = ({ '+': 'add', '-': 'del', '@': 'hunk' } as Record<string, string>)[text[0] ?? '']
  const style = kind === undefined ? '' : ` class="${kind}"`
  return `<span${style}>${escapeHtml(makeLinesVisible(text)) || ' '}</span>`
}

function overlaps(document: RunDocument): string {
  const shared = findOverlaps(document).map(({ path, labels }) => `${code(path)}: ${labels.map(code).join(', ')}`)
  const items = listNames(shared, (html) => html, FILES_SHOWN_MAX)
  return items.length === 0 ? '' : `<h2>Changed by several approaches</h2>${list(items)}`
}

function titled(title: string, items: string[]): string {
  return items.length === 0 ? '' : `<h4>${title}</h4>${list(items)}`
}

function list(items: string[]): string {
  return items.length === 0 ? '' : `<ul>${items.map((item) => `<li>${item}</li>`).join('')}</ul>`
}

function plain(text: string): string {
  return escapeHtml(makeVisible(text))
}

/** Exact text as code: white space is kept by the style sheet, a tab stays one. */
function code(text: string): string {
  const visible = text.split('\t').map((part) => makeVisible(part, 4096)).join('\t')
  return `<code>${escapeHtml(visible).replaceAll('\t', '&#9;')}</code>`
}
