/**
 * The comparison as JUnit XML, for CI systems that read nothing else.
 *
 * Each trial is a suite: one case "verdict", and one for each test that changed or still fails. Well-formed
 * whatever the guest wrote.
 */
import type { RunDocument } from '../model/run.js'
import { entriesOf, type ReportEntry } from './entries.js'
import { nameTrial, trialsByRank } from './facts.js'
import { escapeHtml, makeVisible } from './visible.js'

export function renderJunit(document: RunDocument): string {
  const suites = trialsByRank(document)
    .map((trial) => ({ name: nameTrial(document, trial), entries: entriesOf(trial) }))
  const all = suites.flatMap((suite) => suite.entries)
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<testsuites name="${attribute(`kosa8 ${document.id}`)}"${totals(all)}>`,
    ...suites.flatMap(({ name, entries }) => [
      `  <testsuite name="${attribute(name)}"${totals(entries)}>`,
      ...entries.map((entry) => renderEntry(name, entry)),
      '  </testsuite>',
    ]),
    '</testsuites>',
    '',
  ].join('\n')
}

function renderEntry(suite: string, { name, status, message }: ReportEntry): string {
  const head = `    <testcase classname="${attribute(suite)}" name="${attribute(name)}"`
  if (status === 'passed') return `${head}/>`
  const element = status === 'failed' ? 'failure' : 'skipped'
  return `${head}><${element} message="${attribute(message)}"/></testcase>`
}

function totals(entries: ReportEntry[]): string {
  const count = (status: ReportEntry['status']): number => entries.filter((entry) => entry.status === status).length
  return ` tests="${entries.length}" failures="${count('failed')}" errors="0" skipped="${count('skipped')}"`
}

function attribute(text: string): string {
  return escapeHtml(makeVisible(text))
}
