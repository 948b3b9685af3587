import { describe, expect, test } from 'vitest'
import { readFixture, readText, statuses } from './evidence.js'

describe('jest and vitest', () => {
  test('a file that could not load did not run: it is no test, and the run failed', () => {
    const run = readFixture('vitest.json', { exitCode: 1 })
    expect(statuses(run)).toEqual({ 'test/sum.test.ts › sum › adds': 'passed', 'test/sum.test.ts › sum › later': 'todo' })
    expect(run.didNotRun).toEqual([{ name: 'test/gone.test.ts', message: 'Failed to resolve import' }])
    expect(run.verdict).toBe('failed')
  })

  test('half a document invents nothing', () => {
    const run = readText('{"numTotalTests":3,"success":true,"testResults":[{"name":"/workspace/a.js","assertionResults":[{"title":"x","status":"pas', { exitCode: 139 })
    expect(run).toMatchObject({ cases: [], complete: false, verdict: 'failed', reason: 'killed by signal 11; report cut off' })
  })

  test('a status nobody knows is neither passed nor failed', () => {
    const run = readText('{"success":true,"testResults":[{"name":"a.js","status":"passed","assertionResults":[{"title":"x","status":"constructor"}]}]}')
    expect(statuses(run)).toEqual({ 'a.js › x': 'other' })
  })
})

describe('go', () => {
  test.each(['go-build-broken.jsonl', 'go-build-broken-old.jsonl'])('%s: the package that does not compile did not run', (name) => {
    const run = readFixture(name, { exitCode: 1 })
    expect(run.cases).toHaveLength(1)
    expect(run.didNotRun).toEqual([{ name: 'shop/pay', message: 'pay/pay_test.go:3:1: undefined: Sum' }])
    expect(run.verdict).toBe('failed')
  })

  test('a package that cannot be loaded did not run', () => {
    const run = readText('no required module provides package shop/gone\n{"Action":"output","Package":"shop/gone","Output":"FAIL\\tshop/gone [setup failed]\\n"}\n{"Action":"fail","Package":"shop/gone","Elapsed":0}\n', { exitCode: 1 })
    expect(run).toMatchObject({ cases: [], verdict: 'failed', didNotRun: [{ name: 'shop/gone', message: 'no required module provides package shop/gone' }] })
  })

  test('subtests count, their parent does not', () => {
    expect(statuses(readFixture('go-build-broken.jsonl'))).toEqual({ 'shop/cart › TestAdd/zero': 'passed' })
  })

  test('a test that was running when its package failed has failed', () => {
    const run = readText('{"Action":"run","Package":"p","Test":"TestA"}\n{"Action":"fail","Package":"p","Elapsed":1}\n', { exitCode: 1 })
    expect(statuses(run)).toEqual({ 'p › TestA': 'failed' })
  })

  test('a stream that ends inside a test is cut off, and the test does not count', () => {
    const run = readText('{"Action":"run","Package":"p","Test":"TestA"}\n{"Action":"pass","Package":"p","Test":"TestA"}\n{"Action":"run","Package":"p","Test":"TestB"}\n{"Action":"ou')
    expect(statuses(run)).toEqual({ 'p › TestA': 'passed' })
    expect(run).toMatchObject({ complete: false, verdict: 'failed' })
  })
})

test('CTRF: tests count, its summary does not', () => {
  const run = readFixture('ctrf.json', { exitCode: 1 })
  expect(run.cases).toEqual([
    { name: 'auth › form › logs in', status: 'passed', durationMs: 12 },
    { name: 'test/auth.js › logs out', status: 'failed', durationMs: 3, message: 'no button' },
    { name: 'waits', status: 'skipped', durationMs: 0 },
  ])
})
