import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { readProcessIdentity } from '../../src/util/process-identity.js'
import { startScript } from '../helpers/script.js'
import { aTrialRecord } from '../store/records.js'
import { claimSoon, LOCK_DURATION_MS, QueueBench, whenLost } from './bench.js'

let bench: QueueBench
let runs = 0

beforeAll(async () => { bench = await QueueBench.open() })
afterAll(() => bench.close())

/** A queue of its own for each test, all on one Redis. */
const openQueue = (waitMaxMs = 2000) => bench.queue({ prefix: `test${runs += 1}`, waitMaxMs })
const sameQueue = () => bench.queue({ prefix: `test${runs}` })

describe('a run in the queue', () => {
  it('delivers every trial once, then the comparison', async () => {
    const queue = await openQueue()
    const { run, trials } = await bench.run(3)
    await queue.enqueueRun(run, trials)
    expect(await queue.status(run, trials.map(({ trial }) => trial))).toEqual({
      compare: 'blocked', trials: { waiting: 3, active: 0, done: 0, failed: 0, missing: 0 },
    })
    const delivered = []
    for (let claim = await queue.claimTrial('w'); claim !== null; claim = await queue.claimTrial('w')) {
      delivered.push({ trial: claim.trial, label: claim.label, repeat: claim.repeat, isBaseline: claim.isBaseline })
      expect(claim).toMatchObject({ run, attempt: 1, isLastAttempt: false, givenUp: null })
      expect(await queue.claimCompare('w')).toBeNull()
      expect(await claim.finish()).toBe(true)
    }
    expect(delivered).toEqual(trials)
    const compare = await queue.claimCompare('w')
    expect(compare?.run).toBe(run)
    expect(await compare?.finish()).toBe(true)
    expect(await queue.claimCompare('w')).toBeNull()
    expect(await queue.status(run, trials.map(({ trial }) => trial))).toEqual({
      compare: 'done', trials: { waiting: 0, active: 0, done: 3, failed: 0, missing: 0 },
    })
  })

  it('shows the next trial without taking it', async () => {
    const queue = await openQueue()
    const { run, trials } = await bench.run(2)
    expect(await queue.peekTrial()).toBeNull()
    await queue.enqueueRun(run, trials)
    expect(await queue.peekTrial()).toEqual({ run, ...trials[0] })
    expect((await queue.claimTrial('w'))?.trial).toBe(trials[0]?.trial)
    expect(await queue.peekTrial()).toEqual({ run, ...trials[1] })
  })

  it('is there once, however often it is queued', async () => {
    const queue = await openQueue()
    const { run, trials } = await bench.run(3)
    await Promise.all([1, 2, 3].map(() => queue.enqueueRun(run, trials)))
    await (await queue.claimTrial('w'))?.finish()
    await queue.enqueueRun(run, trials)
    expect(await queue.status(run, trials.map(({ trial }) => trial))).toEqual({
      compare: 'blocked', trials: { waiting: 2, active: 0, done: 1, failed: 0, missing: 0 },
    })
  })

  it('takes further trials, and the comparison waits for them too', async () => {
    const queue = await openQueue()
    const { run, trials } = await bench.run(2)
    await queue.enqueueRun(run, trials.slice(0, 1))
    await (await queue.claimTrial('w'))?.finish()
    await queue.enqueueRun(run, trials)
    expect(await queue.claimCompare('w')).toBeNull()
    await (await queue.claimTrial('w'))?.finish()
    expect((await queue.claimCompare('w'))?.run).toBe(run)
  })

  it('is compared even if no trial is left to run', async () => {
    const queue = await openQueue()
    const { run } = await bench.run(0)
    await queue.enqueueRun(run, [])
    expect((await queue.claimCompare('w'))?.run).toBe(run)
  })

  it('is compared after trials failed for good, and can be taken up again', async () => {
    const queue = await openQueue()
    const { run, trials } = await bench.run(2)
    const ids = trials.map(({ trial }) => trial)
    await queue.enqueueRun(run, trials)
    expect(await (await queue.claimTrial('w'))?.fail(new Error('no disk'), { retry: false })).toBe('failed')
    await (await queue.claimTrial('w'))?.finish()
    await (await queue.claimCompare('w'))?.finish()
    await queue.enqueueRun(run, trials)
    expect(await queue.status(run, ids)).toMatchObject({ compare: 'done', trials: { failed: 1, done: 1 } })
    await queue.enqueueRun(run, trials, { retryFailed: true })
    expect(await queue.status(run, ids)).toMatchObject({ compare: 'blocked', trials: { waiting: 1, done: 1 } })
    const again = await queue.claimTrial('w')
    expect(again).toMatchObject({ trial: ids[0], attempt: 2 })
    await again?.finish()
    expect((await queue.claimCompare('w'))?.run).toBe(run)
  })

  it('that is cancelled loses what waits, and is compared once the rest has ended', async () => {
    const queue = await openQueue()
    const { run, trials } = await bench.run(4)
    const ids = trials.map(({ trial }) => trial)
    await queue.enqueueRun(run, trials)
    const active = await queue.claimTrial('w')
    await (await queue.claimTrial('w'))?.putBack('pre-empted', 60_000)
    await queue.cancelRun(run)
    expect(await queue.claimTrial('w')).toBeNull()
    expect(await queue.status(run, ids)).toEqual({
      compare: 'blocked', trials: { waiting: 0, active: 1, done: 0, failed: 0, missing: 3 },
    })
    await active?.finish()
    expect((await queue.claimCompare('w'))?.run).toBe(run)
  })

  it('that is cancelled before any trial began is compared at once', async () => {
    const queue = await openQueue()
    const { run, trials } = await bench.run(2)
    await queue.enqueueRun(run, trials)
    await queue.cancelRun(run)
    expect((await queue.claimCompare('w'))?.run).toBe(run)
  })

  it('that is forgotten leaves nothing behind', async () => {
    const queue = await openQueue()
    const { run, trials } = await bench.run(2)
    const ids = trials.map(({ trial }) => trial)
    await queue.enqueueRun(run, trials)
    await (await queue.claimTrial('w'))?.finish()
    await queue.forgetRun(run, ids)
    expect(await queue.status(run, ids)).toEqual({
      compare: 'missing', trials: { waiting: 0, active: 0, done: 0, failed: 0, missing: 2 },
    })
    await queue.cancelRun(run)
  })
})

describe('a claim', () => {
  it('is kept for as long as its worker lives', async () => {
    const queue = await openQueue()
    const { run, trials } = await bench.run(1)
    await queue.enqueueRun(run, trials)
    const claim = await queue.claimTrial('w')
    const other = await sameQueue()
    expect(await claimSoon(other, 2 * LOCK_DURATION_MS)).toBeNull()
    expect(claim?.lost.aborted).toBe(false)
    expect(await claim?.finish()).toBe(true)
  })

  it('that failed is tried again up to three attempts, each with a higher number', async () => {
    const queue = await openQueue()
    const { run, trials } = await bench.run(1)
    await queue.enqueueRun(run, trials)
    const outcomes = []
    for (let claim = await queue.claimTrial('w'); claim !== null; claim = await queue.claimTrial('w')) {
      outcomes.push([claim.attempt, claim.isLastAttempt, await claim.fail(new Error('no disk'), { retry: true })])
    }
    expect(outcomes).toEqual([[1, false, 'retried'], [2, false, 'retried'], [3, true, 'failed']])
    expect((await queue.claimCompare('w'))?.run).toBe(run)
  })

  it('that is put back counts as no attempt, and comes again after its delay', async () => {
    const queue = await openQueue()
    const { run, trials } = await bench.run(1)
    await queue.enqueueRun(run, trials)
    for (let round = 1; round <= 5; round += 1) {
      const claim = await queue.claimTrial('w')
      expect(claim).toMatchObject({ attempt: round, isLastAttempt: false })
      expect(await claim?.putBack('shutdown')).toBe(true)
      expect(await claim?.putBack('twice')).toBe(false)
    }
    await (await queue.claimTrial('w'))?.putBack('pre-empted', 300)
    expect(await queue.peekTrial()).toBeNull()
    expect(await queue.claimTrial('w')).toBeNull()
    expect(await claimSoon(queue)).toMatchObject({ attempt: 7 })
  })

  it('wakes a waiting worker when a run is queued', async () => {
    const queue = await openQueue(3_600_000)
    const { run, trials } = await bench.run(1)
    const stop = new AbortController()
    await queue.waitForWork(stop.signal)
    const woken = queue.waitForWork(stop.signal)
    await queue.enqueueRun(run, trials)
    await woken
    expect((await queue.claimTrial('w'))?.run).toBe(run)
    const waiting = queue.waitForWork(stop.signal)
    stop.abort()
    await waiting
  })

  it('of a worker that was killed is delivered again, and its late result is refused', async () => {
    const queue = await openQueue()
    const { run, trials } = await bench.run(1)
    await queue.enqueueRun(run, trials)
    const script = new URL('./claim-and-hang.ts', import.meta.url)
    const child = startScript(script, [bench.home, bench.server.socketPath, `test${runs}`])
    const line = await new Promise<string>((resolve) => child.stdout?.once('data', (chunk: Buffer) => resolve(chunk.toString())))
    expect(JSON.parse(line)).toEqual({ trial: trials[0]?.trial, attempt: 1 })
    expect(await queue.claimTrial('w')).toBeNull()
    const ended = new Promise((resolve) => child.once('exit', resolve))
    child.kill('SIGKILL')
    await ended
    expect(readProcessIdentity(child.pid ?? 0)).toBeNull()
    const again = await claimSoon(queue)
    expect(again).toMatchObject({ run, trial: trials[0]?.trial, attempt: 2 })
    const label = trials[0]?.label ?? ''
    // What the killed worker would have stored, had it only been slow.
    expect(await bench.store.storeTrialRecord(run, aTrialRecord(run, { label, attempt: 1 }))).toEqual({ accepted: false, reason: 'superseded' })
    expect(await bench.store.storeTrialRecord(run, aTrialRecord(run, { label, attempt: 2 }))).toEqual({ accepted: true })
    expect(await again?.finish()).toBe(true)
  })

  it('of a worker known to be dead is given up at once, those of others are not', async () => {
    const queue = await openQueue()
    const { run, trials } = await bench.run(2)
    await queue.enqueueRun(run, trials)
    const [lost, kept] = [await queue.claimTrial('worker-7-1'), await queue.claimTrial('worker-7-12')]
    await queue.releaseClaims('worker-7-1')
    expect(await claimSoon(queue)).toMatchObject({ trial: lost?.trial, attempt: 2 })
    expect(await kept?.finish()).toBe(true)
    expect(await lost?.finish()).toBe(false)
  })

  it('of a dead worker comes up for one that has only looked so far', async () => {
    const prefix = `test${runs += 1}`
    const dead = await bench.queue({ prefix })
    const { run, trials } = await bench.run(1)
    await dead.enqueueRun(run, trials)
    await dead.claimTrial('dead')
    await dead.close()
    const next = await bench.queue({ prefix, waitMaxMs: 200 })
    await vi.waitFor(async () => expect((await next.peekTrial())?.trial).toBe(trials[0]?.trial), 15_000)
  })

  it('is lost by a worker whose event loop is busy: it is told so, and the run is not reported twice', async () => {
    const busy = await openQueue()
    const { run, trials } = await bench.run(1)
    await busy.enqueueRun(run, trials)
    const script = new URL('./claim-next.ts', import.meta.url)
    const claim = await busy.claimTrial('busy')
    const child = startScript(script, [bench.home, bench.server.socketPath, `test${runs}`])
    const second = new Promise<string>((resolve) => child.stdout?.once('data', (chunk: Buffer) => resolve(chunk.toString())))
    // The other worker polls in a process of its own while this one does nothing but count.
    const until = Date.now() + 2 * LOCK_DURATION_MS
    while (Date.now() < until) Math.sqrt(until)
    if (claim !== null) await whenLost(claim)
    expect(claim?.lost.reason).toMatchObject({ code: 'QUEUE_UNREACHABLE', message: expect.stringContaining(`${run}/a@k=x:1/1`) as string })
    expect(await claim?.finish()).toBe(false)
    expect(await claim?.fail(new Error('x'), { retry: true })).toBe('lost')
    expect(JSON.parse(await second)).toMatchObject({ attempt: 2, stored: { accepted: true }, finished: true })
    expect(await bench.store.storeTrialRecord(run, aTrialRecord(run, { label: 'a@k=x:1', attempt: 1 }))).toMatchObject({ accepted: false })
    expect(await bench.store.readTrialRecords(run)).toHaveLength(1)
    expect((await busy.claimCompare('w'))?.run).toBe(run)
  })
})

describe('opening the queue', () => {
  it('says at once where Redis is missing', async () => {
    const opening = bench.queue({ address: { socketPath: `${bench.home}/none.sock` }, answerTimeoutMs: 300 })
    await expect(opening).rejects.toMatchObject({
      code: 'QUEUE_UNREACHABLE', message: expect.stringContaining('none.sock') as string, hint: expect.stringContaining('daemon start') as string,
    })
    const remote = bench.queue({ address: { url: 'redis://user:secret@127.0.0.1:1/0' }, answerTimeoutMs: 300 })
    await expect(remote).rejects.toMatchObject({ code: 'QUEUE_UNREACHABLE', message: expect.not.stringContaining('secret') as string })
  })
})
