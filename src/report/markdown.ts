/**
 * The comparison as Markdown, fit for a comment on a pull request.
 *
 * Owns: layout only. Names and paths are code, sentences are escaped: nothing from the guest becomes markup,
 * a link or a mention.
 */
import type { RunDocument, TrialResult } from '../model/run.js'
import type { FileChange } from '../model/diff.js'
import {
  figuresOf, figuresOfBaseline, findOverlaps, listNames, nameLists, nameTrial, remarksOf, tellBytes, tellTests,
  trialsByRank,
} from './facts.js'
import { codeSpan, escapeHtml, escapeMarkdown, makeVisible } from './visible.js'

/** Files listed per approach, and paths listed as changed by several. */
const FILES_SHOWN_MAX = 50
const REMARKS_SHOWN_MAX = 20

/** Renders the document as GitHub-flavoured Markdown. */
export function renderMarkdown(document: RunDocument): string {
  const trials = trialsByRank(document)
  const sections = [
    `## kosa8: ${headline(document)}`,
    summary(document),
    table(document, trials),
    ...trials.map((trial) => details(document, trial)),
    overlaps(document),
    howToLook(document, trials),
  ]
  return `${sections.filter((section) => section !== '').join('\n\n')}\n`
}

function headline(document: RunDocument): string {
  if (document.winner !== null) return `${codeSpan(document.winner)} wins`
  return document.state === 'completed' ? 'no winner' : `run ${document.state}`
}

function summary({ id, base, baseline, reasons, error }: RunDocument): string {
  const facts = [
    `Run ${codeSpan(id)}`,
    ...(base === null ? [] : [`base ${codeSpan(base.commit.slice(0, 12))}`]),
    ...(baseline === null ? [] : [`baseline ${tellTests(baseline.tests)} tests pass`]),
  ]
  const lines = [...reasons, ...(error === null ? [] : [`${error.code}: ${error.message}`])]
  return [`${facts.join(' · ')}`, '', ...lines.map((reason) => `- ${escapeMarkdown(reason)}`)].join('\n').trimEnd()
}

function table(document: RunDocument, trials: TrialResult[]): string {
  const rows = trials.map((trial) => {
    const name = codeCell(nameTrial(document, trial))
    return [document.winner === trial.label ? `**${name}**` : name, trial.verdict, ...figuresOf(trial)]
  })
  const { baseline } = document
  if (baseline !== null) rows.push(['baseline', '–', ...figuresOfBaseline(baseline)])
  return [
    '| approach | verdict | tests passed | fixed | broke | diff | time | memory |',
    '| --- | --- | --- | --: | --: | --- | --: | --: |',
    ...rows.map((row) => `| ${row.join(' | ')} |`),
  ].join('\n')
}

function codeCell(text: string): string {
  return codeSpan(text).replaceAll('|', '\\|')
}

function details(document: RunDocument, trial: TrialResult): string {
  const title = `${makeVisible(nameTrial(document, trial))}: ${trial.verdict}`
  const parts = [
    trial.reasons.map((reason) => `- ${escapeMarkdown(reason)}`).join('\n'),
    ...nameLists(trial).map((list) => titledList(`Tests ${list.title}`, listNames(list.names, codeSpan))),
    titledList('Test files edited', listNames(trial.tests.tampered, codeSpan)),
    ownTests(trial),
    titledList('Files', listNames(trial.diff?.changes.map(tellChange) ?? [], (line) => line, FILES_SHOWN_MAX)),
    titledList('Remarks', listNames(remarksOf(trial), escapeMarkdown, REMARKS_SHOWN_MAX)),
  ].filter((part) => part !== '')
  return `<details><summary>${escapeHtml(title)}</summary>\n\n${parts.join('\n\n')}\n\n</details>`
}

function ownTests({ tests }: TrialResult): string {
  const { own, passed, total } = tests
  if (own === undefined) return ''
  return `With its own test files: ${own.passed} of ${own.total} pass; with the original ones: ${passed} of ${total}.`
}

function titledList(title: string, lines: string[]): string {
  return lines.length === 0 ? '' : [`**${title}**`, '', ...lines.map((line) => `- ${line}`)].join('\n')
}

function tellChange(change: FileChange): string {
  const from = change.oldPath === undefined ? '' : `${codeSpan(change.oldPath)} → `
  const lines = change.insertions === null || change.deletions === null
    ? `binary, ${tellBytes(change.oldBytes ?? null)} → ${tellBytes(change.newBytes ?? null)}`
    : `+${change.insertions} −${change.deletions}`
  return `${change.status} ${from}${codeSpan(change.path)} (${lines})`
}

function overlaps(document: RunDocument): string {
  const shared = findOverlaps(document).map(({ path, labels }) => `${codeSpan(path)}: ${labels.map(codeSpan).join(', ')}`)
  if (shared.length === 0) return ''
  const lines = listNames(shared, (line) => line, FILES_SHOWN_MAX).map((line) => `- ${line}`)
  return ['### Changed by several approaches', '', ...lines].join('\n')
}

function howToLook(document: RunDocument, trials: TrialResult[]): string {
  const { base } = document
  const refs = trials.filter((trial) => trial.diff !== null && trial.diff.files > 0)
  if (base === null || refs.length === 0) return ''
  const commands = refs.map((trial) => `git diff ${base.commit.slice(0, 12)}..${trial.diff?.ref ?? ''}`)
  const apply = `kosa8 apply ${document.id} ${document.winner ?? refs[0]?.label ?? ''}`
  const lines = listNames([...commands, apply], (line) => makeVisible(line))
  return ['### Look closer', '', '```sh', ...lines, '```'].join('\n')
}
