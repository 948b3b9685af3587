import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, expectTypeOf, it } from 'vitest'
import type { z } from 'zod'
import type { MachineHandle } from '../../src/hypervisor/driver.js'
import { createMachineId, type RunId, type SandboxName, type TrialId } from '../../src/model/ids.js'
import { MachineStore, type machineHandleSchema, type MachineRecord } from '../../src/store/machine-store.js'
import { createPaths, type Paths } from '../../src/store/paths.js'
import { SandboxStore, type SandboxRecord } from '../../src/store/sandbox-store.js'
import { isProcessAlive, ownProcessIdentity, readProcessIdentity } from '../../src/util/process-identity.js'
import { spawnProgram } from '../../src/util/spawn.js'

let home: string
let paths: Paths
beforeEach(async () => {
  home = await mkdtemp(path.join(tmpdir(), 'kosa8-store-'))
  paths = createPaths(home)
})
afterEach(() => rm(home, { recursive: true }))

const shape = { memoryMib: 512, cpus: 1, network: 'none', diskMib: null, processesMax: 4096 } as const
const image = { kernel: '/i/kernel', initrd: '/i/initrd', rootDisk: '/i/root.ext4' }

function aMachine(): MachineRecord {
  const id = createMachineId()
  return {
    id, directory: paths.machineDirectory(id), createdAt: '2026-01-01T00:00:00.000Z', owner: ownProcessIdentity(),
    purpose: { kind: 'trial', run: 'r1' as RunId, trial: 'r1/a/1' as TrialId, attempt: 2 }, handle: null,
  }
}

function aHandle(record: MachineRecord): MachineHandle {
  return {
    version: 1, driver: 'qemu', id: record.id, pid: 7, pidStartTicks: 9, directory: record.directory,
    layersDirectory: '/l', shape, image, memoryFile: '/m', activeLayer: 'x.qcow2',
    parent: {
      shape, image, memoryFile: '/c/memory', deviceFile: '/c/device', diskLayer: 'y.qcow2',
      fingerprint: { driver: 'qemu', version: '7.2.22', machineType: 'microvm', accelerator: 'tcg', cpuModel: 'max' },
    },
  }
}

describe('the journal of machines', () => {
  it('holds the handle of the driver contract, no more and no less', () => {
    expectTypeOf<z.infer<typeof machineHandleSchema>>().toEqualTypeOf<MachineHandle>()
  })

  it('knows a machine before it has a process, then with its handle, then no more', async () => {
    const store = new MachineStore(paths)
    const record = aMachine()
    await store.put(record)
    expect(await new MachineStore(paths).list()).toEqual([record])
    await store.update(record.id, { handle: aHandle(record) })
    expect((await store.read(record.id))?.handle).toEqual(aHandle(record))
    await store.remove(record.id)
    await store.remove(record.id)
    await store.update(record.id, { handle: null })
    expect(await store.list()).toEqual([])
  })

  it('names a damaged record, and takes no temporary file for one', async () => {
    const store = new MachineStore(paths)
    const record = aMachine()
    await store.put(record)
    await writeFile(path.join(paths.machines, '.half.json.tmp'), '{')
    await writeFile(path.join(paths.machines, '.half.json'), '{')
    expect(await store.list()).toHaveLength(1)
    await writeFile(paths.machineRecord(record.id), JSON.stringify({ ...record, owner: { pid: 'seven' } }))
    await expect(store.list()).rejects.toMatchObject({
      code: 'STORE_CORRUPT', message: expect.stringContaining(`${record.id}.json cannot be used: owner.pid`) as string,
    })
  })
})

describe('the records of sandboxes', () => {
  const sandbox: SandboxRecord = {
    name: 'box' as SandboxName, createdAt: '2026-01-01T00:00:00.000Z', image: 'base', shape, egress: 'deny', workingDirectory: null, machine: null,
    repository: { hostPath: '/repo', path: '/workspace', base: { commit: 'c', tree: 't' } }, nextCheckpoint: 1, approvals: null, parent: null, ownedByRun: null,
  }

  it('take a name once', async () => {
    const store = new SandboxStore(paths)
    const made = await Promise.allSettled([store.create(sandbox), store.create(sandbox)])
    expect(made.map((result) => result.status).sort()).toEqual(['fulfilled', 'rejected'])
    await expect(store.create(sandbox)).rejects.toMatchObject({ code: 'SANDBOX_EXISTS' })
  })

  it('are changed, listed and removed by name', async () => {
    const store = new SandboxStore(paths)
    await store.create(sandbox)
    await store.update(sandbox.name, { nextCheckpoint: 2 })
    expect(await store.list()).toEqual([{ ...sandbox, nextCheckpoint: 2 }])
    await store.remove(sandbox.name)
    expect(await store.find(sandbox.name)).toBeNull()
    await expect(store.read(sandbox.name)).rejects.toMatchObject({ code: 'SANDBOX_UNKNOWN' })
    await expect(store.update(sandbox.name, {})).rejects.toMatchObject({ code: 'SANDBOX_UNKNOWN' })
  })
})

describe('the identity of a process', () => {
  it('spares a process that got the number of another', () => {
    const own = ownProcessIdentity()
    expect(isProcessAlive(own)).toBe(true)
    expect(isProcessAlive({ ...own, startTicks: own.startTicks - 1 })).toBe(false)
  })

  it('ends with the process', async () => {
    const child = spawnProgram('sleep', ['60'], { stdio: 'ignore' })
    const identity = readProcessIdentity(child.pid ?? 0)
    expect(identity).not.toBeNull()
    const ended = new Promise((resolve) => child.once('exit', resolve))
    child.kill('SIGKILL')
    await ended
    expect(identity !== null && isProcessAlive(identity)).toBe(false)
  })
})
