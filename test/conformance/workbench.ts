/**
 * A home for the machines of one suite: places, image, and the end of whatever a test started. One machine is
 * booted for all; a test gets a clone of it, which takes a fraction of the time and has a longer history.
 */
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import type { BootConfig, BootImage, Driver, Machine, MachineHandle, MachineShape, MachineSnapshot } from '../../src/hypervisor/driver.js'
import { createMachineId } from '../../src/model/ids.js'
import { ask } from './value-client.js'

/** The smallest machine the base image's kernel is happy with. */
export const SHAPE: MachineShape = { memoryMib: 128, cpus: 1, network: 'none', diskMib: 96, processesMax: 100 }

/** Folders and machines of one suite. */
export class Workbench {
  readonly layersDirectory: string
  private started: Machine[] = []
  private snapshotCount = 0
  private seed: MachineSnapshot | undefined
  private seedLayers: string[] = []

  private constructor(readonly home: string, readonly driver: Driver, readonly image: BootImage) {
    this.layersDirectory = path.join(home, 'layers')
  }

  static async open(driver: Driver, image: BootImage): Promise<Workbench> {
    const bench = new Workbench(await mkdtemp(path.join(tmpdir(), 'kosa8-bench-')), driver, image)
    await mkdir(bench.layersDirectory)
    return bench
  }

  /** Where a machine lives. */
  place(): Pick<BootConfig, 'id' | 'directory' | 'layersDirectory'> {
    const id = createMachineId()
    return { id, directory: path.join(this.home, 'machines', id), layersDirectory: this.layersDirectory }
  }

  async boot(more: Partial<BootConfig> = {}): Promise<Machine> {
    return this.keep(await this.driver.boot({ ...this.place(), shape: SHAPE, image: this.image, ...more }))
  }

  /** A clone that runs. */
  async clone(snapshot: MachineSnapshot, onSpawned?: (handle: MachineHandle) => Promise<void>): Promise<Machine> {
    const machine = this.keep(await this.driver.restore({ ...this.place(), snapshot, onSpawned }))
    await machine.resume()
    return machine
  }

  /** A new, empty folder for a snapshot's files. */
  async snapshotDirectory(): Promise<string> {
    const directory = path.join(this.home, `snapshot-${++this.snapshotCount}`)
    await mkdir(directory)
    return directory
  }

  keep(machine: Machine): Machine {
    this.started.push(machine)
    return machine
  }

  /** A running machine: a clone of the one that was booted first. */
  async machine(): Promise<Machine> {
    this.seed ??= await this.bootSeed()
    return this.clone(this.seed)
  }

  /** Names of the layers of this test. */
  async layers(): Promise<string[]> {
    return (await readdir(this.layersDirectory)).filter((name) => !this.seedLayers.includes(name)).sort()
  }

  /** Ends a test: its machines and layers go. */
  async clear(): Promise<void> {
    await Promise.all(this.started.map((machine) => machine.destroy()))
    this.started = []
    for (const name of await this.layers()) await rm(path.join(this.layersDirectory, name))
  }

  async close(): Promise<void> {
    await this.clear()
    await rm(this.home, { recursive: true, force: true })
  }

  private async bootSeed(): Promise<MachineSnapshot> {
    const machine = await this.boot()
    await ask(machine, 'get memory')
    const { snapshot } = await machine.snapshot(await this.snapshotDirectory())
    await machine.destroy()
    this.seedLayers = [snapshot.diskLayer]
    return snapshot
  }
}
