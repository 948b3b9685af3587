import { createHash } from 'node:crypto'
import { existsSync, readlinkSync } from 'node:fs'
import { chmod, mkdir, mkdtemp, open, readdir, readFile, rm, truncate, writeFile, type FileHandle } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { CheckpointCatalog } from '../../src/checkpoint/catalog.js'
import { collectLayers } from '../../src/checkpoint/layers.js'
import { snapshotOf, type CheckpointManifest } from '../../src/checkpoint/manifest.js'
import type { Driver, Machine } from '../../src/hypervisor/driver.js'
import { createDriver } from '../../src/hypervisor/registry.js'
import { createMachineId, type CheckpointId, type SandboxName } from '../../src/model/ids.js'
import { createOverlay } from '../../src/util/qcow2.js'
import { readValues, writeValues } from '../conformance/value-client.js'

const sandbox = 'box' as SandboxName
const anyHandle = await open('/dev/null')
await anyHandle.close()
let home: string
let catalog: CheckpointCatalog
let driver: Driver
let machine: Machine

beforeEach(async () => {
  home = await mkdtemp(path.join(tmpdir(), 'kosa8-checkpoint-'))
  await mkdir(path.join(home, 'layers'))
  await writeFile(path.join(home, 'root'), '')
  catalog = new CheckpointCatalog({ checkpoints: path.join(home, 'checkpoints'), layers: path.join(home, 'layers') })
  driver = createDriver('fake', {})
  machine = await driver.boot({
    ...place(), shape: { memoryMib: 1, cpus: 1, network: 'none', diskMib: null, processesMax: 4096 },
    image: { kernel: '/k', initrd: '/i', rootDisk: path.join(home, 'root') },
  })
})
afterEach(async () => {
  await machine.destroy()
  await rm(home, { recursive: true })
})

function place() {
  const id = createMachineId()
  return { id, directory: path.join(home, 'machines', id), layersDirectory: path.join(home, 'layers') }
}

async function take(id: string, from = machine): Promise<CheckpointManifest> {
  const directory = await catalog.prepare(sandbox, id as CheckpointId)
  const { snapshot, pauseMs, privateBytes } = await from.snapshot(directory)
  return catalog.commit({
    id: id as CheckpointId, sandbox, label: null, createdAt: new Date().toISOString(), image: { name: 'base', hash: 'x' },
    repository: null, parent: null, pauseMs, privateBytes, snapshot,
  })
}

/** Tells every file and folder that is brought to disk, by the path of its descriptor. */
function watchSyncs(onSync: (file: string) => void): { stop(): void } {
  const handles = Object.getPrototypeOf(anyHandle) as FileHandle
  // Called on the handle it is asked for, as the original is.
  // eslint-disable-next-line @typescript-eslint/unbound-method
  const original = handles.sync
  handles.sync = async function sync(this: FileHandle) {
    await original.call(this)
    onSync(readlinkSync(`/proc/self/fd/${this.fd}`))
  }
  return { stop: () => { handles.sync = original } }
}

function fileOf(id: string, name: string): string {
  return path.join(home, 'checkpoints', sandbox, id, name)
}

describe('a committed checkpoint', () => {
  it('is found again and restores what was saved', async () => {
    await writeValues(machine, 'saved')
    await take('c1')
    const again = new CheckpointCatalog({ checkpoints: path.join(home, 'checkpoints'), layers: path.join(home, 'layers') })
    const manifest = await again.load(sandbox, 'c1' as CheckpointId)
    const clone = await driver.restore({ ...place(), snapshot: snapshotOf(manifest, again) })
    await clone.resume()
    expect(await readValues(clone)).toEqual({ memory: 'saved', disk: 'saved' })
    await clone.destroy()
  })

  it('never changes, whatever is done with it (invariant 1)', async () => {
    await writeValues(machine, 'one')
    const manifest = await take('c1')
    await writeValues(machine, 'two')
    const clone = await driver.restore({ ...place(), snapshot: snapshotOf(manifest, catalog) })
    await clone.resume()
    await writeValues(clone, 'three')
    await take('c2', clone)
    await clone.destroy()
    await catalog.remove(sandbox, 'c2' as CheckpointId)
    await catalog.verify(sandbox, 'c1' as CheckpointId)
    const layer = await readFile(path.join(home, 'layers', manifest.diskLayer))
    expect(createHash('sha256').update(layer).digest('hex'))
      .toBe(manifest.files.find(({ name }) => name === manifest.diskLayer)?.sha256)
  })

  it.each(['memory', 'memory.extents', 'device', 'the layer'])('is refused by name when %s is cut short', async (name) => {
    const manifest = await take('c1')
    const file = name === 'the layer' ? path.join(home, 'layers', manifest.diskLayer) : fileOf('c1', name)
    await chmod(file, 0o600)
    await truncate(file, 1)
    await expect(catalog.load(sandbox, 'c1' as CheckpointId))
      .rejects.toMatchObject({ code: 'CHECKPOINT_CORRUPT', message: expect.stringContaining(file) as string })
  })

  it.each(['memory', 'memory.extents', 'device'])('is refused by verification when a byte of %s has changed', async (name) => {
    await take('c1')
    const bytes = await readFile(fileOf('c1', name))
    bytes[0] = (bytes[0] ?? 0) ^ 1
    await chmod(fileOf('c1', name), 0o600)
    await writeFile(fileOf('c1', name), bytes)
    await expect(catalog.verify(sandbox, 'c1' as CheckpointId))
      .rejects.toMatchObject({ code: 'CHECKPOINT_CORRUPT', message: expect.stringContaining(fileOf('c1', 'memory').slice(0, -6)) as string })
  })

  it.each(['missing', 'cut short'])('is refused by name when a layer below its own is %s', async (what) => {
    const lower = path.join(home, 'layers', (await take('c1')).diskLayer)
    await take('c2')
    await chmod(lower, 0o600)
    if (what === 'missing') await rm(lower)
    else await truncate(lower, 70_000)
    await expect(catalog.load(sandbox, 'c2' as CheckpointId))
      .rejects.toMatchObject({ code: 'CHECKPOINT_CORRUPT', message: expect.stringContaining(lower) as string })
  })

  it('is refused by verification when a byte of a layer below its own has changed', async () => {
    const lower = path.join(home, 'layers', (await take('c1')).diskLayer)
    await take('c2')
    await chmod(lower, 0o600)
    const bytes = await readFile(lower)
    bytes[bytes.length - 1] = 1
    await writeFile(lower, bytes)
    await expect(catalog.verify(sandbox, 'c2' as CheckpointId))
      .rejects.toMatchObject({ code: 'CHECKPOINT_CORRUPT', message: expect.stringContaining(lower) as string })
  })

  it('of a manifest that names no lower layers and no parent is loaded, and refused when such a layer is missing', async () => {
    const lower = path.join(home, 'layers', (await take('c1')).diskLayer)
    const older: Partial<CheckpointManifest> = await take('c2')
    delete older.lowerLayers
    delete older.parent
    await chmod(fileOf('c2', 'manifest.json'), 0o600)
    await writeFile(fileOf('c2', 'manifest.json'), JSON.stringify(older))
    expect(await catalog.load(sandbox, 'c2' as CheckpointId)).toMatchObject({ id: 'c2', parent: null })
    await rm(lower, { force: true })
    await expect(catalog.load(sandbox, 'c2' as CheckpointId))
      .rejects.toMatchObject({ code: 'CHECKPOINT_CORRUPT', message: expect.stringContaining(lower) as string })
  })

  it.each(['{', 'whole'])('can be removed when its manifest is %s and a file of it is gone', async (text) => {
    await take('c1')
    await chmod(fileOf('c1', 'manifest.json'), 0o600)
    if (text !== 'whole') await writeFile(fileOf('c1', 'manifest.json'), text)
    await rm(fileOf('c1', 'device'))
    expect(await catalog.remove(sandbox, 'c1' as CheckpointId)).toBe(true)
    expect(existsSync(path.dirname(fileOf('c1', 'device')))).toBe(false)
    expect(await catalog.remove(sandbox, 'c1' as CheckpointId)).toBe(false)
  })

  it('is never replaced by another of the same id', async () => {
    await take('c1')
    await expect(catalog.prepare(sandbox, 'c1' as CheckpointId)).rejects.toMatchObject({ code: 'CHECKPOINT_FAILED' })
  })

  it('of a newer format is refused by the name of that format', async () => {
    const manifest = await take('c1')
    await chmod(fileOf('c1', 'manifest.json'), 0o600)
    await writeFile(fileOf('c1', 'manifest.json'), JSON.stringify({ ...manifest, format: 'kosa8.checkpoint/2' }))
    await expect(catalog.load(sandbox, 'c1' as CheckpointId))
      .rejects.toMatchObject({ code: 'CHECKPOINT_INCOMPATIBLE', message: expect.stringContaining('kosa8.checkpoint/2') as string })
  })

  it.each(['{', '{}', '[]', '"x"', '{"format":"kosa8.checkpoint/1"}', `"${'x'.repeat(300_000)}"`])('is corrupt when its manifest is %.30s', async (text) => {
    await take('c1')
    await chmod(fileOf('c1', 'manifest.json'), 0o600)
    await writeFile(fileOf('c1', 'manifest.json'), text)
    await expect(catalog.load(sandbox, 'c1' as CheckpointId)).rejects.toMatchObject({ code: 'CHECKPOINT_CORRUPT' })
  })
})

describe('a checkpoint without its manifest (invariant 9)', () => {
  it('has on disk, before its manifest is there, all that the manifest names, the folders included', async () => {
    await take('c1')
    const synced = new Set<string>()
    const syncs = watchSyncs((file) => { if (!existsSync(fileOf('c2', 'manifest.json'))) synced.add(file) })
    try {
      const manifest = await take('c2')
      const layers = [manifest.diskLayer, ...(manifest.lowerLayers ?? []).map(({ name }) => name)]
      expect(layers).toHaveLength(2)
      const files = [...['memory', 'memory.extents', 'device'].map((name) => fileOf('c2', name)), ...layers.map((name) => path.join(home, 'layers', name))]
      const folders = [path.dirname(fileOf('c2', 'memory')), path.join(home, 'checkpoints', sandbox), path.join(home, 'checkpoints'), path.join(home, 'layers')]
      expect([...synced]).toEqual(expect.arrayContaining([...files, ...folders]))
    } finally {
      syncs.stop()
    }
  })

  it('does not exist: not listed, not loaded, and its id is free', async () => {
    const directory = await catalog.prepare(sandbox, 'c1' as CheckpointId)
    await machine.snapshot(directory)
    expect(await catalog.list(sandbox)).toEqual([])
    await expect(catalog.load(sandbox, 'c1' as CheckpointId)).rejects.toMatchObject({ code: 'CHECKPOINT_UNKNOWN' })
    expect(await readdir(await catalog.prepare(sandbox, 'c1' as CheckpointId))).toEqual([])
  })

  it('is what a commit leaves that could not read its files', async () => {
    const directory = await catalog.prepare(sandbox, 'c1' as CheckpointId)
    const { snapshot, pauseMs, privateBytes } = await machine.snapshot(directory)
    await rm(snapshot.deviceFile)
    await expect(catalog.commit({
      id: 'c1' as CheckpointId, sandbox, label: null, createdAt: '', image: { name: 'base', hash: 'x' }, repository: null, parent: null,
      pauseMs, privateBytes, snapshot,
    })).rejects.toThrow()
    expect(existsSync(path.join(directory, 'manifest.json'))).toBe(false)
  })
})

describe('the layers of a host', () => {
  /** When none of them is young any more. */
  const later = (): number => Date.now() + 120_000
  const layer = async (name: string, backingName: string): Promise<void> => {
    const file = path.join(home, 'layers', name)
    await createOverlay(file, { virtualBytes: 4096, backingName, backingFormat: 'qcow2' })
  }

  it('are kept along the backing chain of one that is needed', async () => {
    await layer('a.qcow2', '../root')
    await layer('b.qcow2', 'a.qcow2')
    await layer('c.qcow2', 'b.qcow2')
    await collectLayers(path.join(home, 'layers'), new Set(['c.qcow2']), { now: later })
    expect(await readdir(path.join(home, 'layers'))).toEqual(expect.arrayContaining(['a.qcow2', 'b.qcow2', 'c.qcow2']))
  })

  it('that lie in a circle, or lead out of their folder, are no trap', async () => {
    await layer('a.qcow2', 'b.qcow2')
    await layer('b.qcow2', 'a.qcow2')
    await layer('c.qcow2', '/etc/passwd')
    await collectLayers(path.join(home, 'layers'), new Set(['a.qcow2', 'c.qcow2']), { now: later })
    expect(await readdir(path.join(home, 'layers'))).toEqual(expect.arrayContaining(['a.qcow2', 'b.qcow2', 'c.qcow2']))
  })

  it('that nothing needs go, once they are not very young', async () => {
    await layer('a.qcow2', '../root')
    expect(await collectLayers(path.join(home, 'layers'), new Set())).toEqual([])
    const removed = await collectLayers(path.join(home, 'layers'), new Set(), { now: later })
    expect(removed).toContain('a.qcow2')
  })
})
