/**
 * Makes and finds the sandboxes of one host, and keeps the journal by which they are found again.
 *
 * Owns: the order "journal first, process second, journal last": whatever kills us in between, the next
 * start finds every machine of ours and nothing else. Does not own budgets or names.
 * Callers: daemon and workers, each with its own process as owner of what it starts.
 */
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { BootImage, Driver, MachineHandle, MachineShape, MachineSnapshot } from '../hypervisor/driver.js'
import { createMachineId, type MachineId } from '../model/ids.js'
import type { MachinePurpose, MachineRecord, MachineStore } from '../store/machine-store.js'
import type { Paths } from '../store/paths.js'
import type { Clock } from '../util/clock.js'
import { isProcessAlive, type ProcessIdentity } from '../util/process-identity.js'
import { Sandbox, type SandboxOptions } from './sandbox.js'

/** What a host works with; all injected by the entry files. */
export interface SandboxHostParts {
  driver: Driver
  paths: Paths
  machines: MachineStore
  clock: Clock
  /** The process that owns what this host starts. */
  owner: ProcessIdentity
}

/** A machine of the journal, and what became of it. */
export interface ReapedMachine {
  id: MachineId
  purpose: MachinePurpose
}

/** Starts, clones, finds and removes sandboxes. */
export class SandboxHost {
  constructor(private readonly parts: SandboxHostParts) {}

  /** Boots a fresh sandbox from an image. */
  async boot(options: SandboxOptions & { image: BootImage; shape: MachineShape; purpose: MachinePurpose }): Promise<Sandbox> {
    return this.journalled(options.purpose, (place) => Sandbox.boot(
      this.parts.driver, { ...place, shape: options.shape, image: options.image }, options))
  }

  /** Checks that a snapshot can be restored here, without starting anything. @throws CHECKPOINT_INCOMPATIBLE, MACHINE_START_FAILED */
  async assertRestorable(snapshot: MachineSnapshot): Promise<void> {
    await this.parts.driver.assertRestorable(snapshot)
  }

  /** Builds a sandbox from a checkpoint's snapshot, with an identity of its own. */
  async clone(options: SandboxOptions & { snapshot: MachineSnapshot; purpose: MachinePurpose }): Promise<Sandbox> {
    return this.journalled(options.purpose, (place) => Sandbox.restore(
      this.parts.driver, { ...place, snapshot: options.snapshot }, options))
  }

  /** Notes where a machine stands now, e.g. after a checkpoint has switched its active layer. */
  async note(sandbox: Sandbox): Promise<void> {
    await this.parts.machines.update(sandbox.machine.handle.id, { handle: sandbox.machine.handle })
  }

  /** Ends a sandbox and forgets it; callers of its commands are told `reason`. Safe to call twice. */
  async destroy(sandbox: Sandbox, reason?: string): Promise<void> {
    await sandbox.destroy(reason)
    await this.parts.machines.remove(sandbox.machine.handle.id)
  }

  /** Attaches to a machine of the journal; null when it is gone. It belongs to this process from then on. */
  async recover(record: MachineRecord, options: SandboxOptions): Promise<Sandbox | null> {
    if (record.handle === null) return null
    const sandbox = await Sandbox.recover(this.parts.driver, record.handle, options)
    // The handle as it was found: the record may be of before a snapshot that switched the active layer.
    if (sandbox !== null) await this.parts.machines.put({ ...record, owner: this.parts.owner, handle: sandbox.machine.handle })
    return sandbox
  }

  /** Ends and forgets what a record names, running or not. */
  async reap(record: MachineRecord): Promise<void> {
    await this.parts.driver.reap(record.handle ?? this.handleBeforeSpawn(record))
    await this.parts.machines.remove(record.id)
  }

  /** Ends every machine whose record matches and whose owner is dead (or `ownerMayLive`). */
  async reapWhere(matches: (record: MachineRecord) => boolean, options: { ownerMayLive?: boolean } = {}): Promise<ReapedMachine[]> {
    const reaped: ReapedMachine[] = []
    for (const record of await this.parts.machines.list()) {
      if (!matches(record)) continue
      if (options.ownerMayLive !== true && isProcessAlive(record.owner)) continue
      await this.reap(record)
      reaped.push({ id: record.id, purpose: record.purpose })
    }
    return reaped
  }

  private async journalled(
    purpose: MachinePurpose,
    start: (place: { id: MachineId; directory: string; layersDirectory: string; onSpawned: (handle: MachineHandle) => Promise<void> }) => Promise<Sandbox>,
  ): Promise<Sandbox> {
    const { paths, machines, clock, owner } = this.parts
    const id = createMachineId()
    const directory = paths.machineDirectory(id)
    const createdAt = new Date(clock.now()).toISOString()
    await machines.put({ id, directory, createdAt, owner, purpose, handle: null })
    try {
      // The handle noted last, with the process, is the machine's own until a snapshot changes it.
      return await start({
        id, directory, layersDirectory: paths.layers,
        onSpawned: (handle) => machines.update(id, { handle }),
      })
    } catch (error) {
      // The driver has removed what it had started; a failure to do so leaves the record for the next start.
      if (!isUncleanFailure(error)) await machines.remove(id)
      throw error
    }
  }

  /** A record without a handle: its owner died before the process could be noted. */
  private handleBeforeSpawn(record: MachineRecord): MachineHandle {
    return {
      version: 1, driver: this.parts.driver.name, id: record.id, pid: 0, pidStartTicks: 0,
      directory: record.directory, layersDirectory: this.parts.paths.layers,
      shape: { memoryMib: 0, cpus: 0, network: 'none', diskMib: null, processesMax: 0 }, image: { kernel: '', initrd: '', rootDisk: '' },
      memoryFile: '', activeLayer: '', parent: null,
    }
  }
}

function isUncleanFailure(error: unknown): boolean {
  return error instanceof AggregateError && !Kosa8Error.isInstance(error)
}
