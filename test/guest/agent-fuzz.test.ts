import path from 'node:path'
import { expect, test } from 'vitest'
import { runProgram } from '../../src/util/spawn.js'

const RUN = path.resolve(import.meta.dirname, '../../guest/agent/fuzz/run.sh')

test('100,000 random and damaged frames neither break the agent\'s parser nor hide the next HELLO', async () => {
  const run = await runProgram(RUN, ['100000', '3'])
  expect(run.stderr.toString()).toBe('')
  expect(run.stdout.toString()).toMatch(/^\d+ frames fed, \d+ parsed, no fault\n$/)
  expect(run.code).toBe(0)
})
