import { describe, expect, test } from 'vitest'
import { readFixture, readText, statuses } from './evidence.js'

test('leaves count, a suite does not, and lines inside YAML never do', () => {
  const run = readFixture('node-test.tap', { exitCode: 1 })
  expect(statuses(run)).toEqual({
    'basket › starts empty': 'passed', 'basket › sums # of pieces': 'failed', 'basket › later': 'todo',
    'basket › over the wire': 'skipped', alone: 'passed',
  })
  expect(run.complete).toBe(true)
  expect(run.cases[0]?.durationMs).toBe(0.75)
  expect(run.cases[1]?.message).toContain('sums differ:\nok 9 - only a line of the message')
})

test('a suite that failed although none of its subtests did counts as a failed test', () => {
  const run = readText('TAP version 13\n    ok 1 - a\n    1..1\nnot ok 1 - suite\n1..1\n', { exitCode: 1 })
  expect(statuses(run)).toEqual({ 'suite › a': 'passed', suite: 'failed' })
})

test('subtests in braces belong to the test point before them', () => {
  const run = readText('TAP version 13\nok 1 - suite {\n    ok 1 - a\n    ok 2 - b\n    1..2\n}\nok 2 - alone\n1..2\n')
  expect(statuses(run)).toEqual({ 'suite › a': 'passed', 'suite › b': 'passed', alone: 'passed' })
})

test('a failed test whose name ends in a brace is not lost when nothing closes it', () => {
  const run = readText('1..2\nnot ok 1 - parses {\nok 2 - b\n', { exitCode: 0 })
  expect(statuses(run)).toEqual({ parses: 'failed', b: 'passed' })
  expect(run.verdict).toBe('failed')
})

test('more tests than planned is no pass', () => {
  expect(readText('1..1\nok 1 - a\nok 2 - b\n')).toMatchObject({ verdict: 'failed', reason: '2 tests where 1 were planned' })
})

test('a bail out makes the run failed and names what is missing', () => {
  const run = readText('1..5\nok 1 - a\nok 2 - b\nBail out! database is gone\n')
  expect(run.cases).toHaveLength(2)
  expect(run).toMatchObject({ verdict: 'failed', complete: false, reason: 'bail out: database is gone' })
})

test('a bail out before the first test is a failed run, not one without tests', () => {
  expect(readText('TAP version 13\nBail out!\n')).toMatchObject({ verdict: 'failed', reason: 'bail out', cases: [] })
})

test('to-do tests never fail a run', () => {
  const run = readText('1..4\nok 1 - done\nnot ok 2 - planned # TODO later\nok 3 - bonus # TODO works\nok 4 - net # SKIP offline\n')
  expect(statuses(run)).toEqual({ done: 'passed', planned: 'todo', bonus: 'todo', net: 'skipped' })
  expect(run.verdict).toBe('passed')
})

test('a directive needs white space before its sign', () => {
  const run = readText('1..5\nok 1 - LazyRange#skip\nok 2 - issue \\#7\nnot ok 3 - skip and todo words\nok 4 - real # skip slow\nok 5 - also # SKIPPED here\n')
  expect(statuses(run)).toEqual({
    'LazyRange#skip': 'passed', 'issue #7': 'passed', 'skip and todo words': 'failed', real: 'skipped', also: 'skipped',
  })
})

test('numbers may be missing or repeated', () => {
  const run = readText('ok - first\nnot ok - second\nok 2 - third\n# comment\nok\n1..4\n')
  expect(statuses(run)).toEqual({ first: 'passed', second: 'failed', third: 'passed', 'test 4': 'passed' })
})

test('fewer tests than planned is a report cut off', () => {
  expect(readText('1..3\nok 1 - a\n')).toMatchObject({ complete: false, verdict: 'failed', reason: 'report cut off: 2 of 3 planned tests are missing' })
})

test('a stream that ends before its plan is a report cut off', () => {
  expect(readText('TAP version 14\nok 1 - a\n')).toMatchObject({ complete: false, verdict: 'failed' })
})

test('a YAML block that is never closed does not swallow what follows', () => {
  const run = readText('1..2\nok 1 - a\n  ---\n  x: 1\nnot ok 2 - b\n')
  expect(statuses(run)).toEqual({ a: 'passed', b: 'failed' })
})

describe('the output of several programs', () => {
  test.each([
    ['with version lines', 'TAP version 13\n1..1\nok 1 - a\nTAP version 13\n1..1\nnot ok 1 - b\n'],
    ['with plans only', '1..1\nok 1 - a\n1..1\nnot ok 1 - b\n'],
  ])('%s is read as one document after the other', (_, text) => {
    const run = readText(text)
    expect(statuses(run)).toEqual({ a: 'passed', b: 'failed' })
    expect(run.complete).toBe(true)
  })
})

test('an absurd nesting is passed over and costs nothing', () => {
  const lines = Array.from({ length: 2000 }, (_, depth) => `${' '.repeat(4 * depth)}ok 1 - d`)
  expect(readText(`TAP version 13\n${lines.join('\n')}\n1..1\n`).cases.length).toBeLessThan(100)
})
