import { existsSync } from 'node:fs'
import { chmod, rm, stat } from 'node:fs/promises'
import { once } from 'node:events'
import path from 'node:path'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { lowerLayersOf } from '../../src/checkpoint/layers.js'
import type { BootConfig, MachineHandle } from '../../src/hypervisor/driver.js'
import { createLayerOverlay } from '../../src/hypervisor/qemu/overlay.js'
import { identifyProcess, isAlive } from '../../src/hypervisor/qemu/process-table.js'
import { spawnProgram } from '../../src/util/spawn.js'
import type { Subject } from '../conformance/driver.js'
import { makeQemuSubject } from '../conformance/qemu-subject.js'
import { ask, readValues } from '../conformance/value-client.js'
import { SHAPE, Workbench } from '../conformance/workbench.js'
import { startScript } from '../helpers/script.js'

let subject: Subject
let bench: Workbench
beforeAll(async () => {
  subject = await makeQemuSubject()
  bench = await Workbench.open(subject.driver, subject.image)
})
afterEach(() => bench.clear())
afterAll(async () => {
  await bench.close()
  await subject.dispose()
})

/** Boots a machine in a process of its own and kills that process. */
async function bootByKilledOwner(): Promise<MachineHandle> {
  const config: BootConfig = { ...bench.place(), shape: SHAPE, image: subject.image }
  const owner = startScript(new URL('owner.ts', import.meta.url), [JSON.stringify(config)])
  const exited = once(owner, 'exit')
  const [line] = await once(createInterface(owner.stdout as Readable), 'line') as [string]
  owner.kill('SIGKILL')
  await exited
  return JSON.parse(line) as MachineHandle
}

describe('a QEMU machine whose owner is killed with SIGKILL', () => {
  it('goes on running, is found again by its handle, and can be saved and cloned', async () => {
    const handle = await bootByKilledOwner()
    const machine = await subject.driver.recover(handle)
    if (machine === null) throw new Error('not found again')
    bench.keep(machine)
    expect(await ask(machine, 'set memory still here')).toBe('ok')
    const { snapshot } = await machine.snapshot(await bench.snapshotDirectory())
    expect((await readValues(await bench.clone(snapshot))).memory).toBe('still here')
    await machine.destroy()
    expect(await isAlive({ pid: handle.pid, startTicks: handle.pidStartTicks })).toBe(false)
    expect(await machine.exited).toMatchObject({ expected: true })
  })

  it('is found with the layer below its active one frozen, also when its owner was killed between the two', async () => {
    const machine = await bench.machine()
    const staleHandle = machine.handle
    const { snapshot } = await machine.snapshot(await bench.snapshotDirectory())
    const lower = path.join(staleHandle.layersDirectory, snapshot.diskLayer)
    await chmod(lower, 0o644) // as it was when the disk had just been switched
    machine.detach()
    bench.keep(await subject.driver.recover(staleHandle) ?? machine)
    expect((await stat(lower)).mode & 0o222).toBe(0)
  })

  it('is reaped even when only its directory was ever stored', async () => {
    const handle = await bootByKilledOwner()
    await subject.driver.reap({ ...handle, pid: 0, pidStartTicks: 0 })
    expect(await isAlive({ pid: handle.pid, startTicks: handle.pidStartTicks })).toBe(false)
    expect(existsSync(handle.directory)).toBe(false)
    expect(await bench.layers()).toEqual([])
  })
})

describe('a QEMU machine', () => {
  it('is told from a process that has got its pid since', async () => {
    const stranger = spawnProgram('sleep', ['60'], { stdio: 'ignore' })
    try {
      const identity = await identifyProcess(stranger.pid ?? 0)
      const machine = await bench.machine()
      const stale = { ...machine.handle, pid: stranger.pid ?? 0, pidStartTicks: (identity?.startTicks ?? 0) - 1 }
      expect(await subject.driver.recover(stale)).toBeNull()
      await machine.destroy()
      await subject.driver.reap(stale)
      expect(identity !== null && await isAlive(identity)).toBe(true)
    } finally {
      stranger.kill('SIGKILL')
    }
  })

  it('that shuts down by itself ends with the last lines of its console', async () => {
    const machine = await bench.machine()
    const channel = await machine.openChannel()
    channel.write('off\n')
    const exit = await machine.exited
    expect(exit.expected).toBe(false)
    expect(exit.message).toContain('asked to end')
    await expect(machine.resume()).rejects.toMatchObject({ code: 'MACHINE_GONE' })
  })

  it('that is killed from outside is reported as gone, and destroy still cleans up', async () => {
    const machine = await bench.machine()
    process.kill(machine.handle.pid, 'SIGKILL')
    expect(await machine.exited).toMatchObject({ expected: false, message: expect.stringContaining('SIGKILL') as string })
    await machine.destroy()
    expect(existsSync(machine.handle.directory)).toBe(false)
    expect(await bench.layers()).toEqual([])
  })

  it('goes on when a snapshot cannot be written, and leaves no file', async () => {
    const machine = await bench.machine()
    await expect(machine.snapshot('/proc/no/such/folder')).rejects.toMatchObject({ code: 'CHECKPOINT_FAILED' })
    expect(await bench.layers()).toEqual([machine.handle.activeLayer])
    expect(await ask(machine, 'set memory on')).toBe('ok')
  })

  it('flattens a long chain of overlays when it is saved, again and again, and has what was written before and after', async () => {
    const machine = await bench.machine()
    await ask(machine, 'set disk below')
    const { snapshot } = await machine.snapshot(await bench.snapshotDirectory())
    let top = snapshot.diskLayer
    for (let n = 0; n < 20; n += 1) {
      await createLayerOverlay(bench.layersDirectory, `long-${n}.qcow2`, top)
      top = `long-${n}.qcow2`
    }
    const clone = await bench.clone({ ...snapshot, diskLayer: top })
    const depthOf = async (layer: string): Promise<number> => (await lowerLayersOf(bench.layersDirectory, layer)).length
    expect(await depthOf(clone.handle.activeLayer)).toBeGreaterThan(20)
    const flat = (await clone.snapshot(await bench.snapshotDirectory())).snapshot
    expect(await depthOf(flat.diskLayer)).toBe(0)
    await ask(clone, 'set disk above')
    const next = (await clone.snapshot(await bench.snapshotDirectory())).snapshot
    expect(await depthOf(next.diskLayer)).toBe(1)
    const depths: number[] = []
    for (let n = 0; n < 16; n += 1) depths.push(await depthOf((await clone.snapshot(await bench.snapshotDirectory())).snapshot.diskLayer))
    expect(depths).toEqual([2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0])
    await clone.destroy()
    for (const name of (await bench.layers()).filter((layer) => layer.startsWith('long-'))) await rm(path.join(bench.layersDirectory, name))
    expect((await readValues(await bench.clone(flat))).disk).toBe('below')
    expect((await readValues(await bench.clone(next))).disk).toBe('above')
  })

  it('has one private copy of a page it writes, and none of those it only reads', async () => {
    const machine = await bench.machine()
    const before = await machine.snapshot(await bench.snapshotDirectory())
    const clone = await bench.clone(before.snapshot)
    await ask(clone, 'fill 16')
    const after = await clone.snapshot(await bench.snapshotDirectory())
    expect(after.privateBytes).toBeGreaterThan(16 * 1024 * 1024)
    expect(after.privateBytes).toBeLessThan(16 * 1024 * 1024 + before.privateBytes + 32 * 1024 * 1024)
  })

  it('that cannot start says what QEMU said, and leaves nothing behind', async () => {
    const place = bench.place()
    const image = { ...subject.image, kernel: '/no/such/kernel' }
    await expect(bench.boot({ ...place, image })).rejects.toMatchObject({
      code: 'MACHINE_START_FAILED', message: expect.stringContaining('/no/such/kernel') as string,
    })
    expect(existsSync(place.directory)).toBe(false)
    expect(await bench.layers()).toEqual([])
  })
})
