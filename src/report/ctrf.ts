/** The comparison in the Common Test Report Format; the same checks as in the JUnit report. */
import type { RunDocument } from '../model/run.js'
import { entriesOf } from './entries.js'
import { nameTrial, trialsByRank } from './facts.js'
import { makeVisible, stringifyVisibly } from './visible.js'

export function renderCtrf(document: RunDocument): string {
  const tests = trialsByRank(document).flatMap((trial) => entriesOf(trial).map(({ name, status, message }) => ({
    name: makeVisible(name) || '(no name)', status, duration: 0, suite: [makeVisible(nameTrial(document, trial))],
    ...(status === 'passed' ? {} : { message: makeVisible(message) }),
  })))
  const count = (status: string): number => tests.filter((test) => test.status === status).length
  return `${stringifyVisibly({
    reportFormat: 'CTRF',
    specVersion: '1.0.0',
    generatedBy: 'kosa8',
    timestamp: document.endedAt,
    results: {
      tool: { name: 'kosa8' },
      summary: {
        tests: tests.length, passed: count('passed'), failed: count('failed'), pending: 0,
        skipped: count('skipped'), other: 0,
        start: instantOf(document.createdAt), stop: instantOf(document.endedAt),
      },
      tests,
      extra: { run: document.id, winner: document.winner },
    },
  })}\n`
}

function instantOf(text: string): number {
  const instant = Date.parse(text)
  return Number.isNaN(instant) ? 0 : instant
}
