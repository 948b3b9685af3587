import { describe, expect, test } from 'vitest'
import { compareRun, type RunComparison } from '../../src/compare/compare-run.js'
import type { TrialRecord, Verdict } from '../../src/model/run.js'
import { runDocumentSchema } from '../../src/model/run.js'
import type { TestRun } from '../../src/model/tests.js'
import { baseline, diff, documentOf, plan, record, testRun, threeApproaches } from './records.js'

const BEFORE = testRun({ a: 'passed', b: 'failed', c: 'skipped' })
const FIXED = testRun({ a: 'passed', b: 'passed', c: 'skipped' })
const UNREAD: Partial<TestRun> = { state: 'unparsed', verdict: 'noTests', cases: [] }

function compareOne(tests: TestRun | null, changes: Partial<TrialRecord> = {}, before: TestRun | null = BEFORE): RunComparison {
  return compareRun(plan(['x']), [baseline(before)], [record('x', tests, changes)])
}

function verdictOf(tests: TestRun | null, changes: Partial<TrialRecord> = {}, before: TestRun | null = BEFORE): Verdict | undefined {
  return compareOne(tests, changes, before).trials[0]?.verdict
}

test('the example of three approaches has one winner, and the edited test gains nothing', () => {
  const document = threeApproaches()
  expect(document.winner).toBe('fix')
  expect(document.ranking).toEqual(['fix', 'weaken', 'rewrite'])
  expect(document.trials.map((trial) => trial.verdict)).toEqual(['better', 'worse', 'same'])
  expect(document.trials[2]?.reasons).toContain('edited 1 test file (test/cart.test.js); with the original tests 1 still fails')
  expect(document.trials[2]?.tests.own).toEqual({ total: 3, passed: 3, failed: 0, skipped: 0, errored: 0 })
  expect(runDocumentSchema.parse(document)).toEqual(document)
})

describe('each test against the baseline', () => {
  test('a test that is gone is missing, whatever it was, and never fixed', () => {
    const { tests } = compareOne(testRun({ a: 'passed' })).trials[0] ?? {}
    expect(tests).toMatchObject({ missing: ['b', 'c'], fixed: [], stillFailing: [] })
  })

  test('a failing test that is skipped now still fails; a passing one that is skipped now is broken', () => {
    const { tests } = compareOne(testRun({ a: 'skipped', b: 'skipped', c: 'skipped' })).trials[0] ?? {}
    expect(tests).toMatchObject({ regressed: ['a'], stillFailing: ['b'], fixed: [], missing: [] })
  })

  test('a new test is added and decides nothing', () => {
    const result = compareOne(testRun({ a: 'passed', b: 'failed', c: 'skipped', d: 'passed', e: 'failed' })).trials[0]
    expect(result).toMatchObject({ verdict: 'same', tests: { added: ['d', 'e'] } })
    expect(result?.reasons).toContain('1 added test fails')
  })

  test('to-do counts as skipped, other in the total alone', () => {
    const { tests } = compareOne(testRun({ a: 'todo', b: 'other', c: 'errored' })).trials[0] ?? {}
    expect(tests).toMatchObject({ total: 3, passed: 0, failed: 0, skipped: 1, errored: 1 })
  })
})

describe('the verdict', () => {
  test('better: a test is fixed and nothing broke', () => {
    expect(compareOne(FIXED)).toMatchObject({ winner: 'x', trials: [{ verdict: 'better', reasons: ['fixes 1 test (b)'] }] })
  })

  test.each([
    ['a test broke', testRun({ a: 'failed', b: 'passed', c: 'skipped' })],
    ['a test is missing', testRun({ b: 'passed', c: 'skipped' })],
    ['a file did not run', { ...FIXED, didNotRun: [{ name: 'pay', message: '' }], verdict: 'failed' as const, exitCode: 1 }],
    ['the report is cut off', { ...FIXED, complete: false, verdict: 'failed' as const }],
    ['the run was killed', { ...FIXED, exitCode: 137, verdict: 'failed' as const }],
    ['the run took too long', { ...FIXED, timedOut: true, verdict: 'failed' as const }],
    ['no tests ran', { ...testRun({}), verdict: 'noTests' as const }],
    ['the results cannot be read any more', testRun({}, { ...UNREAD, exitCode: 0 })],
  ])('worse: %s, although a test was fixed', (_, tests) => {
    expect(compareOne(tests)).toMatchObject({ winner: null, trials: [{ verdict: 'worse' }] })
  })

  test('same: nothing changed its outcome', () => {
    expect(compareOne(BEFORE)).toMatchObject({ winner: null, trials: [{ verdict: 'same' }] })
  })

  test('unscored: an error of ours is never a failure of the approach', () => {
    const error = { code: 'MACHINE_GONE', message: 'the machine ended' }
    expect(compareOne(null, { state: 'error', error })).toMatchObject({ trials: [{ verdict: 'unscored', reasons: ['MACHINE_GONE: the machine ended'] }] })
    expect(verdictOf(testRun({}), { state: 'error', error })).toBe('unscored')
  })

  test('unscored: cancelled, or never tested, or no baseline', () => {
    expect(verdictOf(FIXED, { state: 'cancelled' })).toBe('unscored')
    expect(verdictOf(null)).toBe('unscored')
    expect(verdictOf(FIXED, {}, null)).toBe('unscored')
    expect(compareRun(plan(['x']), [], [record('x', FIXED)])).toMatchObject({ baseline: null, winner: null, trials: [{ verdict: 'unscored' }] })
  })

  test('without a test command every approach is the same', () => {
    const comparison = compareRun(plan(['x', 'y'], { test: null }), [baseline(null)], [record('x', null), record('y', null)])
    expect(comparison.trials.map((trial) => [trial.verdict, trial.reasons])).toEqual([['same', ['no tests configured']], ['same', ['no tests configured']]])
    expect(comparison.winner).toBeNull()
  })

  test('a trial that changed nothing is never better', () => {
    expect(verdictOf(FIXED, { diff: diff([]) })).toBe('same')
    expect(verdictOf(FIXED, { notes: ['ended without changes'] })).toBe('same')
  })

  test('a file that did not run in the baseline either is no objection; making it run is a gain', () => {
    const before = testRun({ a: 'passed' }, { didNotRun: [{ name: 'pay', message: '' }], verdict: 'failed', exitCode: 1 })
    expect(verdictOf({ ...before }, {}, before)).toBe('same')
    expect(compareOne(testRun({ a: 'passed', p: 'passed' }), {}, before).trials[0]).toMatchObject({
      verdict: 'better', reasons: ['1 test that could not run in the baseline passes now (pay did not run)'],
    })
  })

  test('an approach that adds tests where there were none is not better for it', () => {
    const before = testRun({}, { verdict: 'noTests' })
    expect(verdictOf(testRun({ mine: 'passed' }), {}, before)).toBe('same')
  })
})

describe('results that cannot be read', () => {
  const unread = (exitCode: number): TestRun => testRun({}, { ...UNREAD, exitCode, verdict: exitCode === 0 ? 'noTests' : 'failed' })
  test.each([
    [0, 0, 'same'], [1, 1, 'same'], [0, 1, 'worse'], [1, 0, 'unscored'], [1, 2, 'unscored'], [0, 137, 'worse'],
  ] as const)('exit status %s before and %s now is %s, and never a winner', (before, now, verdict) => {
    expect(compareOne(unread(now), {}, unread(before))).toMatchObject({ winner: null, trials: [{ verdict, tests: { state: 'unparsed', passed: 0 } }] })
  })

  test('tests that ran nowhere in the baseline and pass now are better; readable results alone are not', () => {
    expect(verdictOf(testRun({ a: 'passed' }), {}, unread(2))).toBe('better')
    expect(verdictOf(testRun({ a: 'passed', b: 'failed' }), {}, unread(2))).toBe('unscored')
    expect(verdictOf(testRun({ a: 'passed' }), {}, unread(0))).toBe('unscored')
  })
})

describe('who can win', () => {
  test.each([
    ['whose strategy was stopped by its limit', { state: 'timedOut' as const }],
    ['whose strategy failed', { state: 'failed' as const, exitCode: 3 }],
    ['that says it stopped at a limit', { notes: ['stopped: limit'] }],
  ])('a trial %s can be better but not win', (_, changes) => {
    expect(compareOne(FIXED, changes)).toMatchObject({ winner: null, trials: [{ verdict: 'better' }], reasons: expect.arrayContaining(['no winner: x is better but did not come to a clean end']) as unknown })
  })

  test('an exit status that no test explains forbids winning, and is worse where the baseline ended with 0', () => {
    expect(compareOne({ ...FIXED, exitCode: 1, verdict: 'failed' })).toMatchObject({ winner: null, trials: [{ verdict: 'better' }] })
    expect(verdictOf({ ...FIXED, exitCode: 1, verdict: 'failed' }, {}, FIXED)).toBe('worse')
  })

  test('of two better ones, more fixed wins, then fewer still failing, then the smaller diff', () => {
    const before = testRun({ a: 'failed', b: 'failed' })
    const one = testRun({ a: 'passed', b: 'failed' })
    const both = testRun({ a: 'passed', b: 'passed' })
    expect(compareRun(plan(['x', 'y']), [baseline(before)], [record('x', one), record('y', both)]).winner).toBe('y')
    const small = compareRun(plan(['x', 'y']), [baseline(before)], [record('x', both, { diff: diff(['p', 'q']) }), record('y', both)])
    expect(small).toMatchObject({ winner: 'y', ranking: ['y', 'x'] })
  })

  test('equals are tied: no winner, and it is said', () => {
    const comparison = compareRun(plan(['x', 'y', 'z']), [baseline(BEFORE)], [record('x', FIXED), record('y', FIXED), record('z', BEFORE)])
    expect(comparison.winner).toBeNull()
    expect(comparison.ranking).toEqual(['x', 'y', 'z'])
    expect(comparison.reasons[0]).toBe('no winner: x and y are tied (fixes 1 test, breaks none, 3 changed lines)')
  })

  test('equals with the same tree are said to have made the same change', () => {
    const same = diff(['p'])
    const { reasons } = compareRun(plan(['x', 'y']), [baseline(BEFORE)], [record('x', FIXED, { diff: same }), record('y', FIXED, { diff: same })])
    expect(reasons).toContain('x and y are tied: they made the same change')
  })
})

describe('repeats', () => {
  const twice = (first: TestRun, second: TestRun, changes: Partial<TrialRecord> = {}): RunComparison =>
    compareRun(plan(['x'], { repeats: 2 }), [baseline(BEFORE)], [record('x', first), record('x', second, { repeat: 2, ...changes })])

  test('a test with mixed outcomes for the same code is flaky: neither fixed nor broken', () => {
    const comparison = twice(testRun({ a: 'failed', b: 'passed', c: 'skipped' }), FIXED)
    expect(comparison.trials.map((trial) => [trial.verdict, trial.tests.flaky, trial.tests.regressed])).toEqual([
      ['better', ['a'], []], ['better', ['a'], []],
    ])
  })

  test('a fix that holds in one repeat only is no fix', () => {
    expect(twice(FIXED, BEFORE)).toMatchObject({ winner: null, trials: [{ verdict: 'same', tests: { flaky: ['b'] } }, { verdict: 'same' }] })
  })

  test('where the code differs, nothing is flaky and the worst repeat counts', () => {
    const comparison = twice(FIXED, testRun({ a: 'failed', b: 'passed', c: 'skipped' }), { diff: diff(['other']) })
    expect(comparison.trials.map((trial) => trial.verdict)).toEqual(['better', 'worse'])
    expect(comparison.winner).toBeNull()
    expect(comparison.reasons).toContain('x: its 2 repeats differ (better 1, worse 1); counted as worse')
  })

  test('a repeat we lost does not count against its approach', () => {
    const comparison = twice(FIXED, testRun({}), { state: 'error', tests: null })
    expect(comparison).toMatchObject({ winner: 'x', trials: [{ verdict: 'better' }, { verdict: 'unscored' }] })
  })

  test('a test that differs between baselines is flaky for everybody', () => {
    const comparison = compareRun(plan(['x']), [baseline(BEFORE), baseline(FIXED, { repeat: 2 })], [record('x', FIXED)])
    expect(comparison.baseline?.tests.flaky).toEqual(['b'])
    expect(comparison).toMatchObject({ winner: null, trials: [{ verdict: 'same', tests: { fixed: [], flaky: ['b'] } }] })
  })
})

describe('whatever the records are', () => {
  const STATUSES = ['passed', 'failed', 'errored', 'skipped', 'todo', 'other'] as const

  /** A small generator with a seed, so that a failure can be repeated. */
  function createRandom(seed: number): (bound: number) => number {
    let state = seed
    return (bound) => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0
      return Math.floor((state / 2 ** 32) * bound)
    }
  }

  function randomRun(random: (bound: number) => number): TestRun {
    const names = ['a', 'b', 'c', 'd'].filter(() => random(5) > 0)
    const run = testRun(Object.fromEntries(names.map((name) => [name, STATUSES[random(STATUSES.length)] ?? 'passed'])))
    return random(8) === 0 ? { ...run, complete: false, verdict: 'failed' } : run
  }

  const seeds = Array.from({ length: 200 }, (_, seed) => seed)

  test('the order of records and repeats changes nothing', () => {
    for (const seed of seeds) {
      const random = createRandom(seed)
      const labels = ['x', 'y', 'z']
      const trials = labels.flatMap((label) => [1, 2].map((repeat) => record(label, randomRun(random), { repeat })))
      const baselines = [baseline(randomRun(random)), baseline(randomRun(random), { repeat: 2 })]
      const shuffled = [...trials].sort(() => random(3) - 1)
      const expected = compareRun(plan(labels, { repeats: 2 }), baselines, trials)
      expect(compareRun(plan(labels, { repeats: 2 }), [...baselines].reverse(), shuffled), `seed ${seed}`).toEqual(expected)
    }
  })

  test('every baseline test is in at most one list, and no verdict contradicts its lists', () => {
    for (const seed of seeds) {
      const random = createRandom(seed)
      const [result] = compareOne(randomRun(random), {}, randomRun(random)).trials
      const { fixed, regressed, stillFailing, missing, added } = result?.tests ?? threeApproaches().trials[0]!.tests
      const all = [...fixed, ...regressed, ...stillFailing, ...missing, ...added]
      expect(new Set(all).size, `seed ${seed}`).toBe(all.length)
      if (result?.verdict === 'better') expect([...regressed, ...missing], `seed ${seed}`).toEqual([])
      if (regressed.length + missing.length > 0) expect(result?.verdict, `seed ${seed}`).toBe('worse')
    }
  })

  test('the winner is the first of the ranking, better, and the ranking names every label once', () => {
    for (const seed of seeds) {
      const random = createRandom(seed)
      const labels = ['x', 'y', 'z']
      const comparison = compareRun(plan(labels), [baseline(randomRun(random))], labels.map((label) => record(label, randomRun(random))))
      expect([...comparison.ranking].sort()).toEqual(labels)
      if (comparison.winner === null) continue
      expect(comparison.winner).toBe(comparison.ranking[0])
      expect(comparison.trials.find((trial) => trial.label === comparison.winner)?.verdict).toBe('better')
    }
  })
})

test('a document of any comparison fits the schema of the result document', () => {
  const document = documentOf(plan(['x']), [baseline(BEFORE)], [record('x', testRun({}, UNREAD))])
  expect(runDocumentSchema.parse(document)).toEqual(document)
})
