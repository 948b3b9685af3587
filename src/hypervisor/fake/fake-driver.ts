/**
 * A driver without virtual machines: everything in this process, every step can be told to fail.
 *
 * Owns: the machines it made, found again by their handles. Snapshots are real files (a restore reads
 * them), so that what keeps, lists and removes checkpoints works on them as on any other.
 */
import { randomUUID } from 'node:crypto'
import { access, readFile, rm, stat } from 'node:fs/promises'
import path from 'node:path'
import { Kosa8Error } from '../../errors/kosa8-error.js'
import { makeFolder } from '../../util/make-folder.js'
import { createOverlay } from '../../util/qcow2.js'
import type {
  BootConfig, Driver, Fingerprint, Machine, MachineHandle, MachineSnapshot, RestoreConfig,
} from '../driver.js'
import { FailureScript } from './failure-script.js'
import { FAKE_DISK_BYTES, FakeMachine } from './fake-machine.js'
import { ValueGuest, type FakeGuestMaker } from './fake-guest.js'

/** How a fake driver behaves. */
export interface FakeDriverOptions {
  /** What runs in its machines; a {@link ValueGuest} by default. */
  makeGuest?: FakeGuestMaker
  /** What fails; nothing by default. */
  script?: FailureScript
  /** Reported as its version; snapshots of another version are refused. */
  version?: string
}

/** Pids of fake machines: beyond what Linux gives to processes. */
const FIRST_PID = 1 << 23

/** Runs fake machines. */
export class FakeDriver implements Driver {
  readonly name = 'fake'
  readonly script: FailureScript
  private readonly machines = new Map<string, FakeMachine>()
  private readonly makeGuest: FakeGuestMaker
  private nextPid = FIRST_PID

  constructor(private readonly options: FakeDriverOptions = {}) {
    this.script = options.script ?? new FailureScript()
    this.makeGuest = options.makeGuest ?? ((state) => new ValueGuest(state))
  }

  async fingerprint(): Promise<Fingerprint> {
    const version = this.options.version ?? '1'
    return { driver: this.name, version, machineType: 'fake', accelerator: 'none', cpuModel: 'none' }
  }

  async boot(config: BootConfig): Promise<Machine> {
    const machine = await this.start('boot', { ...config, parent: null }, null)
    await machine.resume()
    return machine
  }

  async assertRestorable({ fingerprint, memoryFile }: MachineSnapshot): Promise<void> {
    const here = await this.fingerprint()
    if (fingerprint.driver !== here.driver || fingerprint.version !== here.version) {
      throw new Kosa8Error('CHECKPOINT_INCOMPATIBLE', `the checkpoint was saved with version ${fingerprint.version} (here ${here.version})`)
    }
    await access(memoryFile).catch((cause: unknown) => {
      throw new Kosa8Error('MACHINE_START_FAILED', `the checkpoint needs ${memoryFile}, which cannot be read`, { cause })
    })
  }

  async restore({ snapshot, ...place }: RestoreConfig): Promise<Machine> {
    await this.assertRestorable(snapshot)
    const bytes = await readFile(snapshot.memoryFile)
    const state = bytes.subarray(0, bytes.indexOf(0)).toString('utf8')
    return this.start('restore', { ...place, shape: snapshot.shape, image: snapshot.image, parent: snapshot }, state)
  }

  async recover(handle: MachineHandle): Promise<Machine | null> {
    this.script.meet('recover')
    return this.machines.get(keyOf(handle)) ?? null
  }

  async reap(handle: MachineHandle): Promise<void> {
    this.script.meet('reap')
    const machine = [...this.machines.values()].find((one) => keyOf(one.handle) === keyOf(handle)
      || (handle.pid === 0 && one.handle.id === handle.id))
    if (machine !== undefined) return machine.destroy()
    const layer = path.join(handle.layersDirectory, path.basename(handle.activeLayer))
    const found = await stat(layer).catch(() => null)
    if (found?.isFile() === true && (found.mode & 0o222) !== 0) await rm(layer, { force: true })
    await rm(handle.directory, { recursive: true, force: true })
  }

  /** Ends a machine as if its process had died. */
  exit(id: string, message = 'signal SIGKILL'): void {
    for (const machine of this.machines.values()) {
      if (machine.handle.id === id) machine.end({ expected: false, message })
    }
  }

  private async start(
    step: 'boot' | 'restore', config: BootConfig & { parent: MachineSnapshot | null }, state: string | null,
  ): Promise<FakeMachine> {
    const { id, directory, layersDirectory, shape, image, parent } = config
    const planned: MachineHandle = {
      version: 1, driver: this.name, id, pid: 0, pidStartTicks: 0, directory, layersDirectory, shape, image,
      memoryFile: parent?.memoryFile ?? path.join(directory, 'memory'), activeLayer: newLayerName(), parent,
    }
    const layer = path.join(layersDirectory, planned.activeLayer)
    try {
      await makeFolder(directory)
      await config.onSpawned?.(planned)
      await createOverlay(layer, {
        virtualBytes: FAKE_DISK_BYTES,
        backingName: parent?.diskLayer ?? path.relative(layersDirectory, image.rootDisk),
        backingFormat: parent === null ? 'raw' : 'qcow2',
      })
      this.script.meet(step)
      const handle = { ...planned, pid: this.nextPid++, pidStartTicks: 1 }
      await config.onSpawned?.(handle)
      return this.register(handle, state)
    } catch (error) {
      await rm(layer, { force: true })
      await rm(directory, { recursive: true, force: true })
      throw error
    }
  }

  private async register(handle: MachineHandle, state: string | null): Promise<FakeMachine> {
    const machine = new FakeMachine({
      handle, newLayerName, guest: this.makeGuest(state), script: this.script, fingerprint: await this.fingerprint(),
      onGone: () => this.machines.delete(keyOf(handle)),
    })
    this.machines.set(keyOf(handle), machine)
    return machine
  }
}

function keyOf({ pid, pidStartTicks }: MachineHandle): string {
  return `${pid}/${pidStartTicks}`
}

function newLayerName(): string {
  return `${randomUUID()}.qcow2`
}
