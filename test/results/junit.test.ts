import { describe, expect, test } from 'vitest'
import { readFixture, readText, statuses } from './evidence.js'

const HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
const threeCases = (inner: string, message = 'm'): string =>
  `${HEAD}<testsuite name="s"><testcase classname="c" name="a">${inner}</testcase>`
  + `<testcase classname="c" name="b"><failure message="${message}"/></testcase><testcase classname="c" name="d"/></testsuite>`

describe('suites inside suites', () => {
  test('each testcase element counts once, whatever the totals on every level say', () => {
    expect(statuses(readFixture('nested-suites.xml'))).toEqual({
      'billing › Bill::rounds › rounds with data set #0': 'passed',
      'billing › Bill::rounds › rounds with data set #1': 'failed',
      'Bill › opens': 'passed', 'Bill › closes': 'errored', 'Bill › prints': 'skipped',
    })
  })

  test('totals that agree with the cases cause no warning', () => {
    expect(readFixture('nested-suites.xml').warnings).toEqual([])
  })

  test('where totals disagree with the cases, the cases win and a warning says so', () => {
    const run = readText('<testsuites tests="90"><testsuite name="s" tests="45" failures="0"><testcase name="a" classname="c"/>'
      + '<testcase name="b" classname="c"><failure/></testcase></testsuite></testsuites>')
    expect(run.cases).toHaveLength(2)
    expect(run.warnings.join('\n')).toContain('totals disagree: suite s claims 45 tests, 2 are there')
  })
})

describe('times', () => {
  test.each([
    ['1,234.567', 1_234_567], ['1,002,003.5', 1_002_003_500], ['0,160', 160], ['12,5', 12_500], ['1,234', null], ['', null],
    ['NaN', null], ['Infinity', null], ['-0.004', null], ['3.1e-05', 0.031], ['0.25', 250], ['1e400', null],
  ])('time "%s" is %s ms', (time, expected) => {
    const run = readText(`<testsuite name="t"><testcase classname="t" name="x" time="${time}"/></testsuite>`)
    expect(run.cases).toEqual([{ name: 't › x', status: 'passed', durationMs: expected }])
  })
})

describe('ill-formed reports', () => {
  const REPAIRED = 'the report was not well-formed and was repaired'
  test.each([
    ['colour codes', threeCases('<system-out>\u001b[32mok\u001b[0m</system-out>', 'want \u001b[31m2')],
    ['references to control characters', threeCases('<system-out>&#27;[0m &#x1B;[1m</system-out>', '&#0;&#11;')],
    ['NUL', threeCases('', 'a\u0000b')],
    ['U+FFFE', threeCases('<system-out><![CDATA[bad \ufffe]]></system-out>')],
    ['half a surrogate pair', threeCases('', 'half &#xD83D; pair')],
    ['stray ampersands and less-than signs', threeCases('<system-out>if (a < b && c <d) {}</system-out>', 'x && y < z')],
    ['generics that look like elements', threeCases('<system-out>List<String> of <T></system-out>')],
  ])('%s are repaired: three tests, one failed, and a warning', (_, text) => {
    const run = readText(text)
    expect(statuses(run)).toEqual({ 'c › a': 'passed', 'c › b': 'failed', 'c › d': 'passed' })
    expect(run.complete).toBe(true)
    expect(run.warnings).toEqual([`report: ${REPAIRED}`])
  })

  test('a well-formed CDATA end inside a text needs no repair', () => {
    const text = '<testsuite name="s"><testcase classname="c" name="b"><failure><![CDATA[arr[idx[0]]]]><![CDATA[>0]]></failure></testcase></testsuite>'
    const run = readText(text)
    expect(run.cases[0]?.message).toBe('arr[idx[0]]>0')
    expect(run.warnings).toEqual([])
  })

  test('no control character survives in a name or a message', () => {
    const run = readText('<testsuite name="s"><testcase classname="c" name="a\u001b[31m\u0007b"><failure>\u001b]0;title\u0007x\u009b</failure></testcase></testsuite>')
    expect(run.cases).toEqual([{ name: 'c › ab', status: 'failed', durationMs: null, message: 'x' }])
  })
})

describe('reports that are cut off', () => {
  const cut = `${HEAD}<testsuites><testsuite name="s" tests="6"><testcase classname="c" name="t0"/><testcase classname="c" name="t1"><failure message="f">long</failure></testcase>`
  test.each([
    ['in a text', `${cut}<testcase classname="c" name="t2"><failure>abc`],
    ['in CDATA', `${cut}<testcase classname="c" name="t2"><system-out><![CDATA[still`],
    ['in a tag', `${cut}<testcase classn`],
    ['in an attribute that would need repair', `${cut}<testcase classname="a && b`],
  ])('%s: complete cases stay, a begun one does not count, the run failed', (_, text) => {
    const run = readText(text, { exitCode: 139 })
    expect(statuses(run)).toEqual({ 'c › t0': 'passed', 'c › t1': 'failed' })
    expect(run).toMatchObject({ complete: false, verdict: 'failed' })
    expect(run.reason).toBe('killed by signal 11; report cut off; 1 of 2 tests failed')
  })

  test('a cut report of a run that ended with 0 has not passed', () => {
    expect(readText('<testsuite name="s"><testcase name="a"/>')).toMatchObject({ verdict: 'failed', reason: 'report cut off' })
  })
})

describe('entities', () => {
  test.each([
    ['nested ones', '<!DOCTYPE t [<!ENTITY a "x"><!ENTITY b "&a;&a;&a;">]><testsuite><testcase name="&b;"/></testsuite>'],
    ['external ones', '<!DOCTYPE t [<!ENTITY a SYSTEM "file:///etc/passwd">]><testsuite><testcase name="&a;"/></testsuite>'],
  ])('%s are refused, and the run is no pass', (_, text) => {
    const run = readText(text)
    expect(run).toMatchObject({ cases: [], complete: false, verdict: 'failed', reason: 'report refused: it declares entities' })
  })

  test('a harmless doctype is read', () => {
    const run = readText('<?xml version="1.0"?><!DOCTYPE testsuite SYSTEM "junit.dtd"><testsuite name="s"><testcase classname="c" name="a"/></testsuite>')
    expect(run).toMatchObject({ verdict: 'passed', warnings: [] })
  })

  test('a doctype in the output of a test is only text', () => {
    const run = readText(threeCases('<system-out><![CDATA[<!DOCTYPE x [<!ENTITY a "b">]>]]></system-out>'))
    expect(run.cases).toHaveLength(3)
  })
})

describe('dialects', () => {
  test('disabled and notrun are skipped, but a program that ctest cannot find did not run', () => {
    const run = readFixture('ctest.xml')
    expect(statuses(run)).toEqual({
      'Linux-c++ › add': 'passed', 'Linux-c++ › plot': 'skipped', 'Linux-c++ › mail': 'skipped', 'Linux-c++ › gone': 'other',
    })
    expect(run.didNotRun).toEqual([{ name: 'gone', message: 'Unable to find executable: gone' }])
    expect(run.verdict).toBe('failed')
  })

  test.each([
    ['googletest suppressed', '<testcase classname="S" name="x" status="notrun" result="suppressed"/>', 'skipped'],
    ['googletest skipped', '<testcase classname="S" name="x" status="run" result="skipped"><skipped message="no net"/></testcase>', 'skipped'],
    ['phpunit warning', '<testcase classname="S" name="x"><warning>no tests</warning></testcase>', 'other'],
    ['phpunit risky', '<testcase classname="S" name="x"><error type="RiskyTestError">Risky</error></testcase>', 'errored'],
    ['pytest xfail', '<testcase classname="S" name="x"><skipped type="pytest.xfail"/></testcase>', 'skipped'],
    ['pytest strict xpass', '<testcase classname="S" name="x"><failure message="[XPASS(strict)]"/></testcase>', 'failed'],
    ['surefire rerun that passed', '<testcase classname="S" name="x"><flakyFailure message="once"/></testcase>', 'passed'],
  ])('%s', (_, element, status) => {
    expect(statuses(readText(`<testsuite name="s">${element}</testsuite>`))).toEqual({ 'S › x': status })
  })

  test.each([
    ['jest-junit', '<testsuite name="src/pay.test.ts" tests="0" errors="1"><testcase classname="Test suite failed to run" name="src/pay.test.ts"><error>no module</error></testcase></testsuite>', 'src/pay.test.ts'],
    ['vitest', '<testsuite name="test/pay.test.ts" tests="1"><testcase classname="test/pay.test.ts" name="test/pay.test.ts"><failure message="no module"/></testcase></testsuite>', 'test/pay.test.ts'],
    ['pytest', '<testsuite name="pytest" errors="1" tests="1"><testcase classname="" name="tests.test_pay"><error message="collection failure">no module</error></testcase></testsuite>', 'tests.test_pay'],
    ['an error field only', '<testsuite name="pay" tests="0" errors="1"/>', 'pay'],
    ['an error of the suite itself', '<testsuite name="pay"><error message="no module"/></testsuite>', 'pay'],
  ])('%s: a file that could not load is no test, but the run failed', (_, text, name) => {
    const run = readText(text)
    expect(run.cases).toEqual([])
    expect(run.didNotRun.map((entry) => entry.name)).toEqual([name])
    expect(run).toMatchObject({ verdict: 'failed', reason: `${name} did not run` })
  })
})

test('a report nested too deeply is refused', () => {
  const run = readText(`${'<testsuite name="s">'.repeat(5000)}<testcase name="a"/>`)
  expect(run).toMatchObject({ cases: [], verdict: 'failed', reason: 'report refused: nested deeper than 200' })
})

test('an older encoding is honoured', () => {
  const text = '<?xml version="1.0" encoding="iso-8859-1"?><testsuite name="s"><testcase classname="c" name="h\u00f6he"/></testsuite>'
  const run = readText('', { files: [{ path: 'r', content: Buffer.from(text, 'latin1') }] })
  expect(statuses(run)).toEqual({ 'c › höhe': 'passed' })
})
