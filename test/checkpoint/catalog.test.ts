import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises'
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
    repository: null, pauseMs, privateBytes, snapshot,
  })
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
      id: 'c1' as CheckpointId, sandbox, label: null, createdAt: '', image: { name: 'base', hash: 'x' }, repository: null,
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
