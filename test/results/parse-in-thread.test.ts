import { expect, test } from 'vitest'
import { parseInThread } from '../../src/results/parse-in-thread.js'
import { readTestRun } from '../../src/results/read-test-run.js'
import { bytes, evidence } from './evidence.js'

function report(cases: number): Uint8Array {
  const body = Array.from({ length: cases }, (_, index) => `<testcase classname="c" name="t${index}"/>`).join('')
  return bytes(`<testsuite name="s">${body}</testsuite>`)
}

test('a large report is read in a thread and says the same as in place', async () => {
  const input = evidence({ files: [{ path: 'r.xml', content: report(20_000) }] })
  expect(await parseInThread(input)).toEqual(readTestRun(input))
})

test('the event loop of the caller goes on while a large report is read', async () => {
  let turns = 0
  const ticking = setInterval(() => { turns += 1 }, 1)
  try {
    await parseInThread(evidence({ files: [{ path: 'r.xml', content: report(100_000) }] }))
  } finally {
    clearInterval(ticking)
  }
  // Read in place, there would be no turn at all.
  expect(turns).toBeGreaterThan(3)
})

test('a report that takes too long is given up: failed, and it says why', async () => {
  const input = evidence({ files: [{ path: 'r.xml', content: report(100_000) }] })
  expect(await parseInThread(input, { timeoutMs: 1 })).toMatchObject({
    state: 'unparsed', verdict: 'failed', complete: false, reason: 'reports not readable within 1 ms',
  })
})

test('a report that needs too much memory is given up: failed, and it says why', async () => {
  const input = evidence({ files: [{ path: 'r.xml', content: report(150_000) }] })
  expect(await parseInThread(input, { heapMib: 16 })).toMatchObject({
    state: 'unparsed', verdict: 'failed', complete: false, reason: 'reports not readable within 16 MiB',
  })
})
