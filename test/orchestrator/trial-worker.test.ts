import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { trialIdOf } from '../../src/model/ids.js'
import type { TrialRecord } from '../../src/model/run.js'
import type { Reservations } from '../../src/orchestrator/reservations.js'
import type { SandboxHost } from '../../src/sandbox/sandbox-host.js'
import { createDeferred } from '../../src/util/deferred.js'
import { aPlan } from '../store/records.js'
import { PLENTY, TrialBench } from './trial-bench.js'

let bench: TrialBench

beforeEach(async () => { bench = await TrialBench.open() })
afterEach(() => bench.close())

describe('a trial', () => {
  it('has its result on disk before its clone is destroyed (invariant 5)', async () => {
    const { run, trials } = await bench.enqueue(1)
    const seen: { record: TrialRecord | null; machines: number }[] = []
    const host = bench.home.host
    const destroy = host.destroy.bind(host)
    host.destroy = async (sandbox) => {
      seen.push({ record: await bench.queues.store.readTrialRecord({ run, ...trials[0]! }), machines: (await bench.home.left()).records })
      await destroy(sandbox)
    }
    const worker = await bench.work()
    await bench.records(run, 1)
    await worker.stop()
    expect(seen).toEqual([{ record: expect.objectContaining({ state: 'completed', attempt: 1 }) as TrialRecord, machines: 1 }])
    expect((await bench.home.left()).records).toBe(0)
  })

  it.each([
    ['cannot be stored leaves no clone, and is tried again', 'EIO', 2],
    ['finds the disk full is stored once there is room', 'ENOSPC', 1],
  ])('whose result %s', async (_, code, attempt) => {
    const { run } = await bench.enqueue(1)
    let failures = 0
    const runs = Object.create(bench.queues.store) as typeof bench.queues.store
    runs.storeTrialRecord = async (id, record) => {
      if (failures++ === 0) throw Object.assign(new Error('not written'), { code })
      return bench.queues.store.storeTrialRecord(id, record)
    }
    const worker = await bench.work({ runs })
    expect(await bench.records(run, 1)).toMatchObject([{ attempt, state: 'completed' }])
    await worker.stop()
    expect((await bench.home.left()).records).toBe(0)
  })

  it('whose end the queue cannot note is not said to be tried again: it has its result', async () => {
    const { run } = await bench.enqueue(1)
    const queue = await bench.queues.queue({ waitMaxMs: 200 })
    const claimTrial = queue.claimTrial.bind(queue)
    queue.claimTrial = async (name) => {
      const claim = await claimTrial(name)
      return claim === null ? null : { ...claim, finish: () => Promise.reject(new Error('MISCONF Errors writing to the AOF file: No space left on device')) }
    }
    const worker = await bench.work({ queue })
    expect(await bench.records(run, 1)).toMatchObject([{ attempt: 1, state: 'completed' }])
    await worker.stop()
    expect(bench.errors).toEqual([expect.stringMatching(/^the end of .* could not be told to the queue$/)])
    const phases = (await bench.queues.store.readEvents(run)).map((event) => event.type === 'trial-phase' ? event.phase : event.type)
    expect(phases).toEqual(['cloning', 'trial-end'])
  })

  it('that reaches its limit while its machine waits for room on the disk is tried again, not held against its approach', async () => {
    const { run } = await bench.queues.run(0)
    const module = path.join(bench.home.paths.home, 'never-ends.mjs')
    await writeFile(module, 'export default { run: () => new Promise(() => undefined) }')
    const approaches = [{ approach: 'a', label: 'a', strategy: { kind: 'module' as const, path: module }, parameters: {} }]
    await bench.queues.store.storePlan({ ...aPlan(run), approaches, timeoutMs: 1_000 })
    await (await bench.queues.queue()).enqueueRun(run, [{ trial: trialIdOf(run, 'a', 1), label: 'a', repeat: 1, isBaseline: false }])
    const host = bench.home.host
    const clone = host.clone.bind(host)
    host.clone = async (options) => {
      const sandbox = await clone(options)
      const inspect = sandbox.machine.inspect.bind(sandbox.machine)
      sandbox.machine.inspect = async () => ({ ...await inspect(), waitsForDisk: true })
      return sandbox
    }
    await bench.work()
    for await (const event of bench.queues.store.followEvents(run, 0, AbortSignal.timeout(60_000))) {
      if (event.type === 'trial-phase' && event.phase === 'queued') return expect(event.message).toMatch(/^tried again: trial a\/1 needs at least 1 MiB on the disk of /)
    }
    expect.unreachable()
  })

  it('that is delivered a second time while the first is at work has one result and no second machine (invariant 5)', async () => {
    // One at a time: else the first worker may take the second delivery itself, and stand still with that too.
    const { run } = await bench.enqueue(1, { parallel: 1 })
    const isCloned = createDeferred<void>()
    const mayGoOn = createDeferred<void>()
    // The first delivery has its clone and stands still, as a worker does whose event loop is blocked.
    const first = await bench.work({
      runs: Object.assign(Object.create(bench.queues.store) as typeof bench.queues.store, {
        storeTrialRecord: async (id: typeof run, record: TrialRecord) => {
          isCloned.resolve()
          await mayGoOn.promise
          return bench.queues.store.storeTrialRecord(id, record)
        },
      }),
    })
    await isCloned.promise
    await (await bench.queues.queue()).releaseClaims(first.name)
    const second = await bench.work()
    const [record] = await bench.records(run, 1)
    expect(record).toMatchObject({ attempt: 2, state: 'completed' })
    mayGoOn.resolve()
    await Promise.all([first.stop(), second.stop()])
    expect(await bench.queues.store.readTrialRecords(run)).toEqual([record])
    expect(bench.errors.join()).toMatch(/attempt 1, not accepted: (stored|superseded)/)
    expect((await bench.home.left()).records).toBe(0)
  })

  it('starts no machine before its memory is granted, and gives the memory back after its machine is gone (invariant 7)', async () => {
    const count = 64
    const { run } = await bench.enqueue(count)
    let granted = 0
    let grants = 0
    let most = 0
    const budget = 5
    const waiters: (() => void)[] = []
    const machinesNow = async (): Promise<number> => (await bench.home.left()).records
    const faults: string[] = []
    const reservations: Reservations = {
      acquire: async (wish, options) => {
        while (granted >= budget) await new Promise<void>((resolve) => waiters.push(resolve))
        granted += 1
        grants += 1
        most = Math.max(most, granted)
        const held = await PLENTY.acquire(wish, options)
        return { ...held, release: () => {
          granted -= 1
          waiters.splice(0).forEach((wake) => wake())
        } }
      },
    }
    const host = bench.home.host
    const clone = host.clone.bind(host)
    host.clone = async (options: Parameters<SandboxHost['clone']>[0]) => {
      const sandbox = await clone(options)
      // Counting takes a moment: a machine it counts had its memory before, or has been granted it since.
      const [heldBefore, grantsBefore] = [granted, grants]
      const machines = await machinesNow()
      const reservations = heldBefore + grants - grantsBefore
      if (machines > reservations) faults.push(`${machines} machines with ${reservations} reservations`)
      return sandbox
    }
    const worker = await bench.work({ reservations })
    const records = await bench.records(run, count)
    await worker.stop()
    expect(faults).toEqual([])
    expect(records.map(({ state }) => state)).toEqual(Array.from({ length: count }, () => 'completed'))
    expect({ most, granted, machines: await machinesNow() }).toEqual({ most: budget, granted: 0, machines: 0 })
  })

  it('waits for processors when its run sets no number, and says so; a number of its own is followed instead', async () => {
    const most = async (change: { parallel: number | null }): Promise<{ atOnce: number; messages: string[] }> => {
      const { run } = await bench.enqueue(6, change)
      let atOnce = 0
      const host = bench.home.host
      const original = host.clone.bind(host)
      host.clone = async (options) => {
        const sandbox = await original(options)
        atOnce = Math.max(atOnce, (await bench.home.left()).records)
        return sandbox
      }
      const worker = await bench.work({ processorsMax: 2 })
      await bench.records(run, 6)
      await worker.stop()
      host.clone = original
      const messages = (await bench.queues.store.readEvents(run)).map((event) => (event.type === 'trial-phase' && event.phase === 'waiting' ? event.message : ''))
      return { atOnce, messages: messages.filter((message) => message !== '') }
    }
    const automatic = await most({ parallel: null })
    expect(automatic.atOnce).toBeLessThanOrEqual(2)
    expect(automatic.messages).toContain('needs 1 processor, 2 of 2 at work')
    const chosen = await most({ parallel: 1 })
    expect(chosen).toEqual({ atOnce: 1, messages: [] })
  })
})
