/** Which homes meet in the queue. */
import path from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { openHostQueue } from '../../src/orchestrator/host-queue.js'
import type { RunQueue } from '../../src/queue/queue.js'
import { QueueBench } from '../queue/bench.js'

let bench: QueueBench
beforeAll(async () => { bench = await QueueBench.open() })
afterAll(async () => bench.close())

const open = async (home: string): Promise<RunQueue> => {
  const queue = await openHostQueue({
    redisUrl: `unix://${bench.server.socketPath}`, paths: { home, redisSocket: path.join(home, 'nowhere') }, journal: bench.store,
  })
  bench.queues.push(queue)
  return queue
}

it('gives a trial to workers of its own home, also where two homes share one Redis', async () => {
  const { run, trials } = await bench.run(1)
  const mine = await open('/srv/mine')
  await mine.enqueueRun(run, trials)
  expect(await (await open('/srv/other')).claimTrial('theirs')).toBeNull()
  expect(await (await open('/srv/mine')).claimTrial('ours')).toMatchObject({ trial: trials[0]?.trial })
})
