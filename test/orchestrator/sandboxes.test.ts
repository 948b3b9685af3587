/** Named sandboxes over fake machines: what a clone takes over, and that nothing starts without memory. */
import { existsSync } from 'node:fs'
import { chmod, mkdir, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { Ledger } from '../../src/admission/ledger.js'
import { CheckpointCatalog } from '../../src/checkpoint/catalog.js'
import type { CheckpointManifest } from '../../src/checkpoint/manifest.js'
import { Kosa8Error } from '../../src/errors/kosa8-error.js'
import { imageFolder, IMAGE_FILES, type ImageManifest } from '../../src/image/store.js'
import { NO_PROXIES } from '../../src/model/egress.js'
import type { CheckpointId, SandboxName } from '../../src/model/ids.js'
import { Gateways } from '../../src/orchestrator/gateways.js'
import { Sandboxes } from '../../src/orchestrator/sandboxes.js'
import { ReservationStore } from '../../src/store/reservation-store.js'
import { SandboxStore } from '../../src/store/sandbox-store.js'
import { systemClock } from '../../src/util/clock.js'
import { createDeferred } from '../../src/util/deferred.js'
import { ownProcessIdentity } from '../../src/util/process-identity.js'
import { FakeHost } from '../helpers/fake-host.js'

const MIB = 2 ** 20
const SHAPE = { memoryMib: 3, cpus: 2, network: 'none' } as const
const name = (text: string): SandboxName => text as SandboxName

let home: FakeHost
let ledger: Ledger
let budgetMib: number
let sandboxes: Sandboxes
let errors: string[]

beforeEach(async () => {
  home = await FakeHost.open()
  await writeImage(home.paths.images, 'small')
  budgetMib = 1000
  errors = []
  ledger = new Ledger({ budgetBytes: () => budgetMib * MIB, memory: new ReservationStore(home.paths) })
  sandboxes = open()
})

afterEach(() => home.close())

/** What a daemon makes of the host; another one is the next daemon. */
function open(): Sandboxes {
  const { paths, host, machines } = home
  return new Sandboxes({
    host, machines, paths, clock: systemClock, caBundle: null, gateways: new Gateways(NO_PROXIES, () => undefined), store: new SandboxStore(paths),
    catalog: new CheckpointCatalog({ checkpoints: paths.checkpoints, layers: paths.layers }),
    reserve: async (holder, memoryMib) => {
      const answer = await ledger.tryReserve({ bytes: memoryMib * MIB, holder, kind: 'sandbox', owner: ownProcessIdentity() })
      if (answer.admitted) return answer.reservation
      throw new Kosa8Error('MEMORY_INSUFFICIENT', answer.message)
    },
    release: (id) => ledger.release(id), onError: (message) => errors.push(message),
  })
}

/** An image as far as fake machines need one: they never read its files. */
async function writeImage(images: string, image: string): Promise<void> {
  const manifest: ImageManifest = {
    format: 'kosa8.image/1', name: image, hash: '0'.repeat(16), description: '', createdAt: '2026-01-01T00:00:00Z', source: '',
    kernelVersion: '', packages: {}, sizes: { kernelBytes: 0, initrdBytes: 0, rootDiskBytes: 0 }, rootDiskSizeBytes: 0,
  }
  const folder = imageFolder(images, image, manifest.hash)
  await mkdir(folder, { recursive: true })
  await writeFile(path.join(folder, IMAGE_FILES.manifest), JSON.stringify(manifest))
  await writeFile(path.join(folder, IMAGE_FILES.rootDisk), Buffer.alloc(MIB))
}

const create = (wanted = 'source') =>
  sandboxes.create({ name: name(wanted), image: 'small', memoryMib: SHAPE.memoryMib, cpus: SHAPE.cpus, egress: 'deny' })
const shapeOf = async (wanted: string) => (await sandboxes.machines.of(name(wanted))).machine.handle.shape
const machineCount = async (): Promise<number> => (await home.left()).records
const reservedMib = (): number => ledger.status().reservedBytes / MIB

describe('a clone has the memory, processors, image and egress of its parent (invariant 8)', () => {
  it('when a live sandbox is forked, and when its clone is forked again', async () => {
    await create()
    expect(await sandboxes.fork(name('source'), [name('child')])).toEqual([{ name: 'child', error: null }])
    expect(await sandboxes.fork(name('child'), [name('grandchild')])).toEqual([{ name: 'grandchild', error: null }])
    for (const one of ['child', 'grandchild']) {
      expect(await sandboxes.read(name(one))).toMatchObject({ image: 'small', shape: SHAPE, egress: 'deny' })
      expect(await shapeOf(one)).toMatchObject(SHAPE)
    }
    expect(reservedMib()).toBe(3 * SHAPE.memoryMib)
  })

  it('when a sandbox is put back to a checkpoint', async () => {
    const source = await create()
    const { id } = await sandboxes.checkpoints.take(name('source'), { label: null })
    await sandboxes.restore(name('source'), id)
    const restored = await sandboxes.machines.of(name('source'))
    expect(restored.machine.handle).toMatchObject({ shape: SHAPE, image: source.machine.handle.image })
    expect(restored.machine.handle.id).not.toBe(source.machine.handle.id)
    expect(reservedMib()).toBe(SHAPE.memoryMib)
  })
})

describe('no machine starts without a reservation (invariant 7)', () => {
  it('among 64 sandboxes asked for at once: as many as there is memory for, the others are refused and leave nothing', async () => {
    budgetMib = 10 * SHAPE.memoryMib
    const ends = await Promise.allSettled(Array.from({ length: 64 }, (_, index) => create(`box-${index}`)))
    const refused = ends.filter((end) => end.status === 'rejected').map(({ reason }) => (reason as Kosa8Error).code)
    expect(refused).toEqual(Array.from({ length: 54 }, () => 'MEMORY_INSUFFICIENT'))
    expect({ machines: await machineCount(), reserved: reservedMib(), names: (await sandboxes.list()).length })
      .toEqual({ machines: 10, reserved: budgetMib, names: 10 })
  })

  it('neither for a fork, a clone that is lent nor a machine that comes back', async () => {
    await create()
    const { id, manifest } = await sandboxes.checkpoints.take(name('source'), { label: null })
    await sandboxes.machines.end(name('source'))
    await create('other')
    budgetMib = reservedMib()
    const noMemory = { code: 'MEMORY_INSUFFICIENT' }
    await expect(sandboxes.restore(name('source'), id)).rejects.toMatchObject(noMemory)
    await expect(sandboxes.checkpoints.withClone(name('source'), id, new AbortController().signal, async () => 'used')).rejects.toMatchObject(noMemory)
    await expect(sandboxes.createFromCheckpoint(name('third'), manifest, await sandboxes.read(name('source')))).rejects.toMatchObject(noMemory)
    expect(await sandboxes.fork(name('other'), [name('child')])).toMatchObject([{ error: noMemory }])
    expect({ machines: await machineCount(), reserved: reservedMib() }).toEqual({ machines: 1, reserved: SHAPE.memoryMib })
    expect((await sandboxes.list()).map((record) => record.name).sort()).toEqual(['other', 'source'])
  })

  it('and the memory is given back when the machine could not be started', async () => {
    home.driver.script.failNext('boot')
    await expect(create()).rejects.toThrow(/boot was told to fail/)
    await create()
    const { id } = await sandboxes.checkpoints.take(name('source'), { label: null })
    home.driver.script.failNext('restore')
    await expect(sandboxes.restore(name('source'), id)).rejects.toThrow(/restore was told to fail/)
    expect({ machines: await machineCount(), reserved: reservedMib() }).toEqual({ machines: 1, reserved: SHAPE.memoryMib })
    budgetMib = reservedMib()
    home.driver.script.failNext('restore')
    await expect(sandboxes.restore(name('source'), id)).rejects.toThrow(/restore was told to fail/)
    expect({ machines: await machineCount(), reserved: reservedMib() }).toEqual({ machines: 0, reserved: 0 })
    await sandboxes.restore(name('source'), 'source-ckpt-1' as CheckpointId)
    expect(errors).toEqual([])
  })
})

describe('a rewind that cannot be done', () => {
  const files = (id: CheckpointId) => ({
    manifest: path.join(home.paths.checkpoints, 'source', id, 'manifest.json'), layers: home.paths.layers,
  })
  const spoil: Record<string, (id: CheckpointId, manifest: CheckpointManifest) => Promise<void>> = {
    'was saved with another version': async (id, manifest) => {
      await chmod(files(id).manifest, 0o600)
      await writeFile(files(id).manifest, JSON.stringify({ ...manifest, fingerprint: { ...manifest.fingerprint, version: '0' } }))
    },
    'lacks a file': (id) => rm(path.join(path.dirname(files(id).manifest), 'memory')),
    'lacks a layer below its own': async (id, { lowerLayers }) => rm(path.join(files(id).layers, lowerLayers?.at(-1)?.name ?? 'none')),
    'does not start': async () => home.driver.script.failNext('restore'),
  }

  it.each(Object.keys(spoil))('because its checkpoint %s leaves the sandbox running as it was', async (kind) => {
    await create()
    await sandboxes.checkpoints.take(name('source'), { label: null })
    const { id, manifest } = await sandboxes.checkpoints.take(name('source'), { label: null })
    const before = await sandboxes.machines.of(name('source'))
    await spoil[kind]?.(id, manifest)
    await expect(sandboxes.restore(name('source'), id)).rejects.toThrow()
    expect(await sandboxes.machines.of(name('source'))).toBe(before)
    expect((await before.machine.inspect()).isRunning).toBe(true)
    expect({ machines: await machineCount(), reserved: reservedMib() }).toEqual({ machines: 1, reserved: SHAPE.memoryMib })
  })
})

describe('a checkpoint', () => {
  it('names the one its state descends from, also after a rewind and in a fork', async () => {
    await create()
    const take = async (of = 'source') => (await sandboxes.checkpoints.take(name(of), { label: null })).manifest
    const first = await take()
    const second = await take()
    await sandboxes.restore(name('source'), first.id)
    const third = await take()
    expect([first.parent, second.parent, third.parent]).toEqual([null, { sandbox: 'source', id: first.id }, { sandbox: 'source', id: first.id }])
    await sandboxes.fork(name('source'), [name('child')])
    expect((await take('child')).parent).toMatchObject({ sandbox: 'source' })
  })
})

describe('a checkpoint that is read', () => {
  it('is read in a second clone when the first does not begin, in no third one, and its memory is given back', async () => {
    await create()
    const { id } = await sandboxes.checkpoints.take(name('source'), { label: null })
    const read = (): Promise<string> => sandboxes.checkpoints.withClone(name('source'), id, new AbortController().signal, async () => 'read')
    let falling = 1
    home.script = { beforeIdentity: async () => { home.script.identity = falling-- > 0 ? { clock: 5 } : {} } }
    await expect(read()).resolves.toBe('read')
    expect(errors).toEqual([expect.stringContaining(id)])
    falling = 2
    await expect(read()).rejects.toMatchObject({ code: 'IDENTITY_NOT_REPAIRED' })
    expect(home.agents).toHaveLength(1 + 2 + 2)
    expect({ machines: await machineCount(), reserved: reservedMib() }).toEqual({ machines: 1, reserved: SHAPE.memoryMib })
  })
})

describe('the next daemon', () => {
  const restart = async ({ isAlone } = { isAlone: true }): Promise<void> => {
    sandboxes.machines.detachAll()
    sandboxes = open()
    await sandboxes.recover(ledger.status().reservations, { isAlone })
  }

  it('finds a machine that answers late, and removes only then what nothing refers to', async () => {
    const { machine } = await create()
    for (let n = 0; n < 4; n += 1) home.driver.script.failNext('recover')
    const orphan = path.join(home.paths.layers, 'orphan.qcow2')
    await writeFile(orphan, '')
    await restart()
    expect(sandboxes.machines.stateOf(name('source'))).toBe('unreachable')
    expect(existsSync(orphan)).toBe(true)
    expect((await sandboxes.machines.of(name('source'))).machine.handle.id).toBe(machine.handle.id)
    expect({ machines: await machineCount(), reserved: reservedMib() }).toEqual({ machines: 1, reserved: SHAPE.memoryMib })
    await expect.poll(() => existsSync(orphan)).toBe(false)
  })

  it('removes what was left of a checkpoint half taken, while a worker lives only that of a sandbox it knows', async () => {
    await create()
    const { id } = await sandboxes.checkpoints.take(name('source'), { label: null })
    const [whole, left, keptByWorker] = [`source/${id}`, 'source/source-ckpt-2', 'mend-1-0e08b3f9/mend-1-0e08b3f9-ckpt-1']
      .map((folder) => path.join(home.paths.checkpoints, folder)) as [string, string, string]
    for (const folder of [left, keptByWorker]) await mkdir(folder, { recursive: true })
    const there = (): boolean[] => [whole, left, keptByWorker].map((folder) => existsSync(folder))
    await restart({ isAlone: false })
    expect(there()).toEqual([true, false, true])
    await restart({ isAlone: true })
    expect(there()).toEqual([true, false, false])
  })

  it('serves while a machine does not answer, says so, and ends that machine when its sandbox is rewound', async () => {
    const { machine } = await create()
    const { id } = await sandboxes.checkpoints.take(name('source'), { label: null })
    for (let n = 0; n < 20; n += 1) home.driver.script.failNext('recover')
    await restart()
    expect(sandboxes.machines.stateOf(name('source'))).toBe('unreachable')
    await sandboxes.restore(name('source'), id)
    expect((await sandboxes.machines.of(name('source'))).machine.handle.id).not.toBe(machine.handle.id)
    expect({ machines: await machineCount(), reserved: reservedMib() }).toEqual({ machines: 1, reserved: SHAPE.memoryMib })
  })

  it('does not know a sandbox whose repository was still being put into it, and gives its memory back', async () => {
    const filling = createDeferred<void>()
    const never = sandboxes.create({
      name: name('half'), image: 'small', memoryMib: SHAPE.memoryMib, cpus: SHAPE.cpus, egress: 'deny',
      fill: (_, onStep) => { onStep('uploading it'); filling.resolve(); return new Promise(() => undefined) },
    })
    await Promise.race([filling.promise, never])
    expect(sandboxes.machines.stateOf(name('half'))).toBe('starting')
    expect(sandboxes.machines.stepOf(name('half'))).toBe('uploading it')
    await restart()
    expect(await sandboxes.list()).toEqual([])
    expect(reservedMib()).toBe(0)
  })
})
