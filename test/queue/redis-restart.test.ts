import { describe, expect, it, onTestFinished } from 'vitest'
import { aTrialRecord } from '../store/records.js'
import { claimSoon, QueueBench, whenLost } from './bench.js'

/** Seconds after which a worker must have taken a job again, once Redis is back. */
const RESUME_WITHIN_MS = 15_000

async function openBench(persistence: 'yes' | 'no'): Promise<QueueBench> {
  const bench = await QueueBench.open(persistence)
  onTestFinished(() => bench.close())
  return bench
}

describe('when Redis is killed in the middle of a run', () => {
  it('with its file kept, workers go on by themselves and no trial is lost or run twice', async () => {
    const bench = await openBench('yes')
    const queue = await bench.queue({ lockDurationMs: 30_000 })
    const { run, trials } = await bench.run(6)
    const ids = trials.map(({ trial }) => trial)
    await queue.enqueueRun(run, trials)
    const [first, second] = [await queue.claimTrial('w'), await queue.claimTrial('w')]
    await first?.finish()
    // appendfsync everysec: what Redis has said yes to is in the hands of the kernel, which outlives its SIGKILL.
    await bench.killRedis()
    await expect(queue.status(run, ids)).rejects.toMatchObject({ code: 'QUEUE_UNREACHABLE' })
    const finishing = second?.finish()
    const claiming = claimSoon(queue, 60_000)
    await bench.startRedisAgain()
    expect(await finishing).toBe(true)
    const resumed = await Promise.race([claiming, new Promise((resolve) => setTimeout(resolve, RESUME_WITHIN_MS, 'too late').unref())])
    expect(resumed).toMatchObject({ trial: ids[2], attempt: 1 })
    await (await claiming)?.finish()
    for (let claim = await queue.claimTrial('w'); claim !== null; claim = await queue.claimTrial('w')) {
      expect(claim.attempt).toBe(1)
      await claim.finish()
    }
    expect((await queue.status(run, ids)).trials.done).toBe(6)
    expect((await queue.claimCompare('w'))?.run).toBe(run)
  })

  it('with all data lost, the loss is seen, and queuing the run again restores what has no result', async () => {
    const bench = await openBench('no')
    const queue = await bench.queue()
    const { run, trials } = await bench.run(6)
    const ids = trials.map(({ trial }) => trial)
    await queue.enqueueRun(run, trials)
    const [first, second] = [await queue.claimTrial('w'), await queue.claimTrial('w')]
    if (first === null || second === null) throw new Error('no claim')
    await bench.store.storeTrialRecord(run, aTrialRecord(run, { label: first.label, repeat: first.repeat }))
    await bench.killRedis()
    await bench.startRedisAgain()
    expect(await queue.status(run, ids)).toEqual({
      compare: 'missing', trials: { waiting: 0, active: 0, done: 0, failed: 0, missing: 6 },
    })
    expect(await first.finish()).toBe(false)
    await whenLost(second)
    const recorded = (await bench.store.readTrialRecords(run)).map(({ label, repeat }) => `${label}/${repeat}`)
    await queue.enqueueRun(run, trials.filter(({ label, repeat }) => !recorded.includes(`${label}/${repeat}`)))
    const attempts: Record<string, number> = {}
    for (let claim = await claimSoon(queue); claim !== null; claim = await queue.claimTrial('w')) {
      attempts[claim.repeat] = claim.attempt
      await claim.finish()
    }
    // The counter in Redis is gone; the journal on disk keeps the number of the interrupted trial rising.
    expect(attempts).toEqual({ 2: 2, 3: 1, 4: 1, 5: 1, 6: 1 })
    expect((await queue.claimCompare('w'))?.run).toBe(run)
  })

  it('before a worker starts, opening the queue fails in time, and works once Redis is back', async () => {
    const bench = await openBench('yes')
    const { run, trials } = await bench.run(6)
    await (await bench.queue()).enqueueRun(run, trials)
    await bench.killRedis()
    await expect(bench.queue({ answerTimeoutMs: 500 })).rejects.toMatchObject({ code: 'QUEUE_UNREACHABLE' })
    await bench.startRedisAgain()
    expect(await claimSoon(await bench.queue())).toMatchObject({ run, attempt: 1 })
  })

  it('a queue can be closed while it is away', async () => {
    const bench = await openBench('yes')
    const queue = await bench.queue()
    const { run, trials } = await bench.run(1)
    await queue.enqueueRun(run, trials)
    await queue.claimTrial('w')
    await bench.killRedis()
    const claiming = queue.claimTrial('w')
    await queue.close()
    expect(await claiming).toBeNull()
  })
})
