import { expect, it } from 'vitest'
import { TrialLog } from '../../src/orchestrator/trial-log.js'

it('a log for which there is no room ends early, which fails nothing and is said', async () => {
  const live: string[] = []
  const log = new TrialLog('/dev/full', (_, text) => live.push(text))
  log.line('one')
  await log.close()
  expect(live).toEqual(['one\n'])
  expect(log.loss).toMatch(/^its log ends early: no space left/)
})
