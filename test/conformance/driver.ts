/**
 * What holds for every driver. Runs against a guest that keeps one value in memory and one on disk.
 */
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { readdir, readFile, rm } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { BootImage, Driver, MachineHandle, MachineSnapshot } from '../../src/hypervisor/driver.js'
import type { MachineId } from '../../src/model/ids.js'
import { ask, readValues, writeValues } from './value-client.js'
import { SHAPE, Workbench } from './workbench.js'

/** A driver under test, and an image its machines boot from. */
export interface Subject {
  driver: Driver
  image: BootImage
  dispose(): Promise<void>
}

/** Declares the suite for one driver. */
export function describeDriver(name: string, makeSubject: () => Promise<Subject>): void {
  describe(`the ${name} driver`, () => {
    let subject: Subject
    let bench: Workbench
    beforeAll(async () => {
      subject = await makeSubject()
      bench = await Workbench.open(subject.driver, subject.image)
    })
    afterEach(() => bench.clear())
    afterAll(async () => {
      await bench.close()
      await subject.dispose()
    })

    it('boots a machine whose guest answers on the channel', async () => {
      const machine = await bench.boot()
      expect(await ask(machine, 'set memory here')).toBe('ok')
      expect((await machine.inspect()).isRunning).toBe(true)
    })

    it('tells where a machine lives before its process is started, and again with its pid', async () => {
      const told: MachineHandle[] = []
      const machine = await bench.boot({ onSpawned: async (handle) => { told.push(handle) } })
      expect(told.map(({ pid }) => pid)).toEqual([0, machine.handle.pid])
      expect(told.map(({ directory }) => directory)).toEqual([machine.handle.directory, machine.handle.directory])
    })

    it('leaves nothing behind when the owner cannot store the handle', async () => {
      const place = bench.place()
      const onSpawned = async ({ pid }: MachineHandle): Promise<void> => {
        if (pid !== 0) throw new Error('the store is full')
      }
      await expect(bench.boot({ ...place, onSpawned })).rejects.toThrow('the store is full')
      expect(existsSync(place.directory)).toBe(false)
      expect(await bench.layers()).toEqual([])
    })

    it('keeps a paused machine from answering, and lets it answer once resumed', async () => {
      const machine = await bench.machine()
      await writeValues(machine, 'before')
      await machine.pause()
      expect((await machine.inspect()).isRunning).toBe(false)
      const answer = ask(machine, 'get memory')
      await machine.resume()
      expect(await answer).toBe('before')
    })

    it('opens a new channel by closing the former', async () => {
      const machine = await bench.machine()
      const first = await machine.openChannel()
      const closed = new Promise((resolve) => first.once('close', resolve))
      expect(await ask(machine, 'set memory x')).toBe('ok')
      await closed
    })

    it('takes a snapshot of a running machine, which goes on (invariant 4)', async () => {
      const machine = await bench.boot()
      await writeValues(machine, 'one')
      const report = await machine.snapshot(await bench.snapshotDirectory())
      expect(report.pauseMs).toBeGreaterThanOrEqual(0)
      expect(report.privateBytes).toBeGreaterThan(0)
      expect((await machine.inspect()).isRunning).toBe(true)
      await writeValues(machine, 'two')
      expect(await readValues(machine)).toEqual({ memory: 'two', disk: 'two' })
    })

    it('leaves a paused machine paused after a snapshot', async () => {
      const machine = await bench.machine()
      await writeValues(machine, 'one')
      await machine.pause()
      await machine.snapshot(await bench.snapshotDirectory())
      expect((await machine.inspect()).isRunning).toBe(false)
    })

    it('restores every clone of a snapshot at the same instant of memory and disk (invariant 3)', async () => {
      const machine = await bench.machine()
      await writeValues(machine, 'then')
      const { snapshot } = await machine.snapshot(await bench.snapshotDirectory())
      await writeValues(machine, 'later')
      const clones = await Promise.all([1, 2, 3].map(() => bench.clone(snapshot)))
      for (const clone of clones) expect(await readValues(clone)).toEqual({ memory: 'then', disk: 'then' })
    })

    it('keeps clones independent of one another and of their source', async () => {
      const machine = await bench.machine()
      await writeValues(machine, 'source')
      const { snapshot } = await machine.snapshot(await bench.snapshotDirectory())
      const clones = await Promise.all([0, 1].map(() => bench.clone(snapshot)))
      for (const [index, clone] of clones.entries()) await writeValues(clone, `clone ${index}`)
      for (const [index, clone] of clones.entries()) {
        expect(await readValues(clone)).toEqual({ memory: `clone ${index}`, disk: `clone ${index}` })
      }
      expect(await readValues(machine)).toEqual({ memory: 'source', disk: 'source' })
    })

    it('restores a machine paused', async () => {
      const machine = await bench.machine()
      await writeValues(machine, 'x')
      const { snapshot } = await machine.snapshot(await bench.snapshotDirectory())
      const clone = bench.keep(await bench.driver.restore({ ...bench.place(), snapshot }))
      expect((await clone.inspect()).isRunning).toBe(false)
    })

    it('gives a clone the shape of its parent (invariant 8)', async () => {
      const machine = await bench.machine()
      await writeValues(machine, 'x')
      const { snapshot } = await machine.snapshot(await bench.snapshotDirectory())
      expect((await bench.clone(snapshot)).handle.shape).toEqual(SHAPE)
    })

    it('takes snapshots of clones and clones of those, three generations deep', async () => {
      let machine = await bench.machine()
      const snapshots: MachineSnapshot[] = []
      for (const generation of ['one', 'two', 'three']) {
        await writeValues(machine, generation)
        const { snapshot } = await machine.snapshot(await bench.snapshotDirectory())
        snapshots.push(snapshot)
        await writeValues(machine, `${generation}, gone on`)
        machine = await bench.clone(snapshot)
        expect(await readValues(machine)).toEqual({ memory: generation, disk: generation })
      }
      const first = await bench.clone(snapshots[0] as MachineSnapshot)
      expect(await readValues(first)).toEqual({ memory: 'one', disk: 'one' })
    })

    it('never changes the files of a snapshot, whatever its source and its clones do (invariant 1)', async () => {
      const machine = await bench.machine()
      await writeValues(machine, 'one')
      const directory = await bench.snapshotDirectory()
      const { snapshot } = await machine.snapshot(directory)
      const layer = path.join(bench.layersDirectory, snapshot.diskLayer)
      const before = await hashFiles(directory, layer)
      await writeValues(machine, 'two')
      const clone = await bench.clone(snapshot)
      await writeValues(clone, 'three')
      await clone.snapshot(await bench.snapshotDirectory())
      await clone.destroy()
      await machine.destroy()
      expect(await hashFiles(directory, layer)).toEqual(before)
    })

    it('runs on without its parent’s memory file, and can be saved again', async () => {
      const machine = await bench.machine()
      await writeValues(machine, 'kept')
      const { snapshot } = await machine.snapshot(await bench.snapshotDirectory())
      const clone = await bench.clone(snapshot)
      await removeSnapshotFiles(snapshot)
      const again = await clone.snapshot(await bench.snapshotDirectory())
      expect(await readValues(await bench.clone(again.snapshot))).toEqual({ memory: 'kept', disk: 'kept' })
    })

    it('takes snapshots of one machine one after the other', async () => {
      const machine = await bench.machine()
      await writeValues(machine, 'x')
      const directories = [await bench.snapshotDirectory(), await bench.snapshotDirectory()]
      const reports = await Promise.all(directories.map((directory) => machine.snapshot(directory)))
      expect(new Set(reports.map(({ snapshot }) => snapshot.diskLayer)).size).toBe(2)
      for (const { snapshot } of reports) {
        expect(await readValues(await bench.clone(snapshot))).toEqual({ memory: 'x', disk: 'x' })
      }
    })

    it('calls the owner right before the pause and right after it', async () => {
      const machine = await bench.machine()
      await writeValues(machine, 'x')
      const seen: string[] = []
      const note = (step: string) => async (): Promise<void> => {
        seen.push(`${step} ${(await machine.inspect()).isRunning ? 'running' : 'paused'}`)
      }
      await machine.snapshot(await bench.snapshotDirectory(), { beforePause: note('before'), afterResume: note('after') })
      expect(seen).toEqual(['before running', 'after running'])
    })

    it('leaves the machine running and no file when the owner refuses the pause', async () => {
      const machine = await bench.machine()
      await writeValues(machine, 'x')
      const directory = await bench.snapshotDirectory()
      const beforePause = (): Promise<void> => Promise.reject(new Error('the guest is not quiet'))
      await expect(machine.snapshot(directory, { beforePause })).rejects.toThrow('the guest is not quiet')
      expect(await readdir(directory)).toEqual([])
      expect(await bench.layers()).toEqual([machine.handle.activeLayer])
      expect(await readValues(machine)).toEqual({ memory: 'x', disk: 'x' })
    })

    it('refuses a snapshot of another version by naming what differs', async () => {
      const machine = await bench.machine()
      await writeValues(machine, 'x')
      const { snapshot } = await machine.snapshot(await bench.snapshotDirectory())
      const foreign = { ...snapshot, fingerprint: { ...snapshot.fingerprint, version: '0.0.1' } }
      await expect(bench.driver.restore({ ...bench.place(), snapshot: foreign }))
        .rejects.toMatchObject({ code: 'CHECKPOINT_INCOMPATIBLE', message: expect.stringContaining('version 0.0.1') as string })
    })

    it('leaves no file after destroy, and destroys only once', async () => {
      const machine = await bench.machine()
      const { directory } = machine.handle
      await Promise.all([machine.destroy(), machine.destroy()])
      expect(existsSync(directory)).toBe(false)
      expect(await bench.layers()).toEqual([])
      expect(await machine.exited).toMatchObject({ expected: true })
      await expect(machine.pause()).rejects.toMatchObject({ code: 'MACHINE_GONE' })
      await expect(machine.openChannel()).rejects.toMatchObject({ code: 'MACHINE_GONE' })
    })

    it('recovers a machine by its handle and knows its active layer', async () => {
      const machine = await bench.machine()
      await writeValues(machine, 'x')
      const staleHandle = machine.handle
      await machine.snapshot(await bench.snapshotDirectory())
      machine.detach()
      const again = await bench.driver.recover(staleHandle)
      expect(again?.handle.activeLayer).toBe(machine.handle.activeLayer)
      expect(again && await readValues(bench.keep(again))).toEqual({ memory: 'x', disk: 'x' })
    })

    it('recovers nothing once the machine has ended', async () => {
      const machine = await bench.machine()
      await machine.destroy()
      expect(await bench.driver.recover(machine.handle)).toBeNull()
    })

    it('reaps a live machine, a dead one, and one whose pid was never stored', async () => {
      const machine = await bench.machine()
      machine.detach()
      await bench.driver.reap(machine.handle)
      await bench.driver.reap(machine.handle)
      const unstored = await bench.machine()
      unstored.detach()
      await bench.driver.reap({ ...unstored.handle, pid: 0, pidStartTicks: 0 })
      for (const { handle } of [machine, unstored]) {
        expect(existsSync(handle.directory)).toBe(false)
        expect(await bench.driver.recover(handle)).toBeNull()
      }
      expect(await bench.layers()).toEqual([])
    })

    it('reaps one whose owner was killed before it could be started', async () => {
      const { handle } = await bench.machine()
      const directory = path.join(path.dirname(handle.directory), 'never-started')
      await bench.driver.reap({ ...handle, id: 'never-started' as MachineId, directory, activeLayer: '', pid: 0, pidStartTicks: 0 })
      expect(await bench.layers()).toEqual([handle.activeLayer])
    })

    it('spares a layer that has become part of a snapshot when it reaps by an old handle', async () => {
      const machine = await bench.machine()
      await writeValues(machine, 'x')
      const oldHandle = machine.handle
      const { snapshot } = await machine.snapshot(await bench.snapshotDirectory())
      machine.detach()
      await bench.driver.reap(oldHandle)
      expect(await readValues(await bench.clone(snapshot))).toEqual({ memory: 'x', disk: 'x' })
    })
  })
}

async function hashFiles(directory: string, layer: string): Promise<string[]> {
  const files = [...(await readdir(directory)).sort().map((name) => path.join(directory, name)), layer]
  return Promise.all(files.map(async (file) => createHash('sha256').update(await readFile(file)).digest('hex')))
}

async function removeSnapshotFiles({ memoryFile }: MachineSnapshot): Promise<void> {
  await rm(path.dirname(memoryFile), { recursive: true })
}
