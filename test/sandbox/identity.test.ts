/** Clones whose guest does not confirm that it has an identity of its own. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { FRAME_TYPE } from '../../src/guest/frames.js'
import type { MachineHandle, MachineSnapshot } from '../../src/hypervisor/driver.js'
import type { SandboxName } from '../../src/model/ids.js'
import type { Sandbox } from '../../src/sandbox/sandbox.js'
import { createDeferred } from '../../src/util/deferred.js'
import { FakeHost } from '../helpers/fake-host.js'
import { IDENTITY_STEPS, u32 } from '../helpers/scripted-agent.js'

let home: FakeHost
let snapshot: MachineSnapshot
let before: Awaited<ReturnType<FakeHost['left']>>

beforeEach(async () => {
  home = await FakeHost.open()
  snapshot = await home.snapshot()
  before = await home.left()
})

afterEach(async () => {
  vi.useRealTimers()
  await home.close()
})

const clone = (): Promise<Sandbox> =>
  home.host.clone({ snapshot, gateway: null, hostname: 'clone-1', purpose: { kind: 'sandbox', name: 'clone-1' as SandboxName } })

/** Notes the machine while its guest is asked, so that it can be looked for afterwards. */
function watchMachine(): { handle: () => Promise<MachineHandle>; beforeIdentity: () => Promise<void> } {
  const found = createDeferred<MachineHandle>()
  return {
    handle: () => found.promise,
    beforeIdentity: async () => {
      const [record] = await home.machines.list()
      found.resolve(record!.handle!)
    },
  }
}

async function expectNothingLeft(handle: MachineHandle): Promise<void> {
  expect(await home.driver.recover(handle)).toBeNull()
  expect(await home.left()).toEqual(before)
}

describe('a clone is not handed out and is destroyed, process and files (invariant 2), when its guest', () => {
  // The owner's own hook may fail: what it repairs is not ours to promise.
  it.each(IDENTITY_STEPS.filter((step) => step !== 'hook'))('does not confirm the step %s', async (step) => {
    const machine = watchMachine()
    home.script = { identity: { [step]: 13 }, beforeIdentity: machine.beforeIdentity }
    await expect(clone()).rejects.toMatchObject({ code: 'IDENTITY_NOT_REPAIRED' })
    await expectNothingLeft(await machine.handle())
  })

  it('answers with something that is no confirmation', async () => {
    const machine = watchMachine()
    home.script = { identityPayload: u32(0, 0), beforeIdentity: machine.beforeIdentity }
    await expect(clone()).rejects.toMatchObject({ code: 'IDENTITY_NOT_REPAIRED' })
    await expectNothingLeft(await machine.handle())
  })

  it('never answers', async () => {
    const machine = watchMachine()
    const asked = createDeferred<void>()
    home.script = {
      beforeIdentity: async () => {
        await machine.beforeIdentity()
        asked.resolve()
        await new Promise<never>(() => undefined)
      },
    }
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const cloning = clone()
    const refused = expect(cloning).rejects.toMatchObject({ code: 'IDENTITY_NOT_REPAIRED', message: expect.stringContaining('clone-1') as string })
    await asked.promise
    await vi.advanceTimersByTimeAsync(10 * 60_000)
    await refused
    await expectNothingLeft(await machine.handle())
  })

  it('is gone before it has confirmed', async () => {
    const machine = watchMachine()
    home.script = {
      beforeIdentity: async () => {
        await machine.beforeIdentity()
        home.driver.exit((await machine.handle()).id)
      },
    }
    await expect(clone()).rejects.toMatchObject({ code: 'IDENTITY_NOT_REPAIRED' })
    await expectNothingLeft(await machine.handle())
  })
})

it('a clone whose agent does not even greet is destroyed', async () => {
  home.script = { isDeaf: true }
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  const refused = expect(clone()).rejects.toMatchObject({ code: 'GUEST_UNREACHABLE' })
  await vi.waitFor(() => expect(home.agents).toHaveLength(1))
  await vi.advanceTimersByTimeAsync(10 * 60_000)
  await refused
  expect(await home.left()).toEqual(before)
})

it('a clone is asked to repair its identity before anything else, and handed out once it has', async () => {
  const sandbox = await clone()
  expect(home.agents[0]!.asked).toEqual([FRAME_TYPE.identity])
  await home.host.destroy(sandbox)
})

it('a clone that could not be destroyed either stays in the journal, for the next start to end it', async () => {
  home.script = { identity: { reseed: 13 } }
  home.driver.script.failNext('destroy')
  await expect(clone()).rejects.toThrow(/did not confirm: reseeded/)
  const [record] = await home.machines.list()
  expect(await home.driver.recover(record!.handle!)).not.toBeNull()
  await home.host.reapWhere(() => true, { ownerMayLive: true })
  await expectNothingLeft(record!.handle!)
})
