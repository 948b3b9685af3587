import { describe, expect, test } from 'vitest'
import { readTestRun } from '../../src/results/read-test-run.js'
import { bytes, evidence, readText, statuses } from './evidence.js'

const GOOD = '<testsuite name="s"><testcase classname="c" name="a"/></testsuite>'
const EMPTY = {
  'zero bytes': '', 'spaces only': ' \n \n', 'a declaration only': '<?xml version="1.0"?>\n',
  'an empty root': '<testsuites name="Mocha Tests" tests="0" failures="0">\n</testsuites>',
  'properties only': '<testsuite><properties><property name="a" value="b"/></properties></testsuite>',
}

describe('a run without tests', () => {
  test.each(Object.entries(EMPTY))('a report of %s is never a pass', (_, text) => {
    expect(readText(text, { exitCode: 0 })).toMatchObject({ verdict: 'noTests', reason: 'no tests ran' })
    expect(readText(text, { exitCode: 2 })).toMatchObject({ verdict: 'failed', reason: 'exit status 2; no tests ran' })
    expect(readText(text, { exitCode: 137 })).toMatchObject({ verdict: 'failed', reason: 'killed by signal 9; no tests ran' })
    expect(readText(text, { exitCode: null, signal: 9 })).toMatchObject({ verdict: 'failed', reason: 'killed by signal 9; no tests ran' })
  })

  test('no report file at all is never a pass', () => {
    const without = { resultsConfigured: true }
    expect(readTestRun(evidence(without))).toMatchObject({ verdict: 'noTests', state: 'unparsed', reason: 'no tests ran: no report written by this run' })
    expect(readTestRun(evidence({ ...without, exitCode: 2 }))).toMatchObject({ verdict: 'failed', reason: 'exit status 2; no report written by this run' })
    expect(readTestRun(evidence({ ...without, timedOut: true, exitCode: null }))).toMatchObject({ verdict: 'failed' })
  })

  test('output for people and exit status 0 is unparsed, never passed', () => {
    const run = readTestRun(evidence({ stdout: bytes('ok 3 tests passed\nPASS all good\nok 1 looks like TAP\n') }))
    expect(run).toMatchObject({ state: 'unparsed', verdict: 'noTests', cases: [] })
  })
})

describe('a passed run', () => {
  test('is one with tests, none failed, all of it read and exit status 0', () => {
    expect(readText(GOOD)).toMatchObject({ state: 'parsed', verdict: 'passed', reason: null, complete: true })
  })

  test('is not one whose command ended with another status', () => {
    expect(readText(GOOD, { exitCode: 1 })).toMatchObject({ verdict: 'failed', reason: 'exit status 1' })
  })

  test('is not one that was stopped by the time limit', () => {
    expect(readText(GOOD, { timedOut: true })).toMatchObject({ verdict: 'failed', reason: 'the tests did not end in time' })
  })

  test('is not one of whose reports one could not be fetched', () => {
    expect(readText(GOOD, { unreadReports: ['big.xml is too large'] })).toMatchObject({ verdict: 'failed', reason: 'big.xml is too large' })
  })
})

describe('several reports', () => {
  const file = (path: string, text: string): { path: string; content: Uint8Array } => ({ path, content: bytes(text) })

  test('one bad file among good ones is named and the run has not passed', () => {
    const run = readTestRun(evidence({ files: [file('out/a.xml', GOOD), file('out/b.xml', '')] }))
    expect(run).toMatchObject({ verdict: 'failed', reason: 'out/b.xml is empty', complete: false })
    expect(run.cases).toHaveLength(1)
  })

  test('the order of the files does not matter', () => {
    const files = [file('b.xml', GOOD), file('a.tap', '1..1\nnot ok 1 - c\n'), file('c.xml', GOOD.replace('name="a"', 'name="z"'))]
    expect(readTestRun(evidence({ files: [...files].reverse() }))).toEqual(readTestRun(evidence({ files })))
  })

  test('the same name twice in one run stays two tests', () => {
    const run = readTestRun(evidence({ files: [file('a.xml', GOOD), file('b.xml', `${GOOD} `), file('c.xml', GOOD.replace('"a"', '"a #2"'))] }))
    expect(run.cases.map((each) => each.name)).toEqual(['c › a', 'c › a #3', 'c › a #2'])
  })

  test('a copy of a report counts once', () => {
    const run = readTestRun(evidence({ files: [file('a.xml', GOOD), file('copy.xml', GOOD)] }))
    expect(run.cases).toHaveLength(1)
    expect(run.warnings).toEqual(['copy.xml is the same as a.xml and was read once'])
  })
})

describe('reports from before the run', () => {
  test('are named and never read', () => {
    const run = readTestRun(evidence({ exitCode: 2, staleReports: ['report.xml'] }))
    expect(run).toMatchObject({ verdict: 'failed', cases: [], staleReports: ['report.xml'], reason: 'exit status 2; no report written by this run' })
  })

  test('are named beside a report of this run', () => {
    const run = readText(GOOD, { staleReports: ['report.xml'] })
    expect(run.cases).toHaveLength(1)
    expect(run.warnings).toEqual(['report.xml is from before this run and was not read'])
  })
})

describe('standard output', () => {
  const read = (text: string): ReturnType<typeof readTestRun> => readTestRun(evidence({ stdout: bytes(text) }))

  test('is read when it is TAP with a plan', () => {
    expect(statuses(read('1..2\nok 1 - two and two\nnot ok 2 - five and none\n'))).toEqual({ 'two and two': 'passed', 'five and none': 'failed' })
  })

  test('is read when it is one jest document, also below the lines npm prints', () => {
    const document = '{"success":true,"numTotalTests":1,"testResults":[{"name":"a.js","status":"passed","assertionResults":[{"title":"x","status":"passed"}]}]}'
    expect(read(`\n> shop@1.0.0 test\n> jest --json\n\n${document}\n`)).toMatchObject({ state: 'parsed', verdict: 'passed' })
  })

  test('is not read when a document is only a part of it', () => {
    expect(read('hello\n{"success":true,"testResults":[]}\n')).toMatchObject({ state: 'unparsed' })
  })

  test('is not looked at when report files were written', () => {
    expect(readText(GOOD, { stdout: bytes('1..1\nnot ok 1 - x\n') })).toMatchObject({ verdict: 'passed' })
  })
})

test('the format is found by content, not by name', () => {
  const run = readTestRun(evidence({ files: [{ path: 'results.xml', content: bytes('1..1\nok 1 - a\n') }] }))
  expect(statuses(run)).toEqual({ a: 'passed' })
})

test('a long name is cut and stays unique and stable', () => {
  const long = (end: string): string => `<testsuite name="s"><testcase classname="c" name="${'x'.repeat(5000)}${end}"/></testsuite>`
  const [a, b] = [readText(long('1')).cases[0]?.name ?? '', readText(long('2')).cases[0]?.name ?? '']
  expect(a.length).toBeLessThanOrEqual(400)
  expect(a).not.toBe(b)
  expect(readText(long('1')).cases[0]?.name).toBe(a)
})
