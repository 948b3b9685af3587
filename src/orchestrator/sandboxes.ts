/**
 * The named sandboxes of this host, live and stored.
 *
 * Owns: making, forking and removing them, what each may reach, and tidying up after a restart. Does not own:
 * which machine each runs on (`sandbox-machines.ts`), its checkpoints (`sandbox-checkpoints.ts`,
 * `sandbox-restore.ts`), how a machine works (`sandbox`), who asked. One per daemon.
 */
import { randomBytes } from 'node:crypto'
import { stat } from 'node:fs/promises'
import type { WaitOptions } from '../admission/ledger.js'
import { snapshotOf, type CheckpointManifest } from '../checkpoint/manifest.js'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { resolveImage, type ResolvedImage } from '../image/store.js'
import type { MachineShape } from '../hypervisor/driver.js'
import type { BlockedAttempt } from '../model/egress.js'
import type { CheckpointId, RunId, SandboxName } from '../model/ids.js'
import { DEFAULT_PROCESSES_MAX } from '../model/machine-shape.js'
import type { RunPlan } from '../model/run.js'
import type { Reservation } from '../model/reservation.js'
import type { Sandbox } from '../sandbox/sandbox.js'
import type { SandboxRecord } from '../store/sandbox-store.js'
import { CleanupStack } from '../util/cleanup.js'
import { requireFreeSpace, tellDiskFull } from '../util/disk-space.js'
import { trustHostCertificates } from './host-certificates.js'
import { SandboxCheckpoints } from './sandbox-checkpoints.js'
import { SandboxMachines } from './sandbox-machines.js'
import type { SandboxParts, SandboxRepository } from './sandbox-parts.js'
import { SandboxRestore, type Restored } from './sandbox-restore.js'

const MIB = 1024 * 1024
/** What a machine that starts writes to its disk at least, bytes; with less it would stand still in its boot. */
export const START_DISK_BYTES = 16 * MIB

/** A sandbox to be made; with `onWait` it waits for memory. */
export interface NewSandbox extends WaitOptions {
  name: SandboxName
  image: string
  memoryMib: number
  cpus: number
  /** Size of the disk; the image's by default. */
  diskMib?: number | undefined
  /** Processes of all its commands together; {@link DEFAULT_PROCESSES_MAX} by default. */
  processesMax?: number | undefined
  /** Normal form of a rule. */
  egress: string
  /** Public key, PEM, of the person whose approval guarded calls need. */
  approvals?: string
  ownedByRun?: RunId
  /** Puts a repository into the machine and says its steps; the sandbox is there only once that is done. */
  fill?: (sandbox: Sandbox, onStep: (step: string) => void) => Promise<SandboxRepository>
}

/** How a new sandbox gets its machine. */
interface Start {
  memoryMib: number
  wait?: WaitOptions | undefined
  /** What making it is called. */
  step: string
  machine: () => Promise<Sandbox>
  /** What is to be done in the machine before the sandbox is there. */
  prepare?: (sandbox: Sandbox, onStep: (step: string) => void) => Promise<SandboxRepository | null>
}

/** Sandboxes by name. Unknown names: SANDBOX_UNKNOWN. */
export class Sandboxes {
  readonly machines: SandboxMachines
  readonly checkpoints: SandboxCheckpoints
  private readonly restores: SandboxRestore

  constructor(private readonly parts: SandboxParts) {
    this.machines = new SandboxMachines(parts)
    this.checkpoints = new SandboxCheckpoints(parts, this.machines)
    this.restores = new SandboxRestore(parts, this.machines)
  }

  async list(): Promise<SandboxRecord[]> {
    return this.parts.store.list()
  }

  async read(name: SandboxName): Promise<SandboxRecord> {
    return this.parts.store.read(name)
  }

  async requireImage(name: string): Promise<ResolvedImage> {
    return resolveImage(name, this.parts.paths.images)
  }

  /** Boots a sandbox. Nothing of it is left when this fails. */
  async create(wanted: NewSandbox): Promise<Sandbox> {
    const image = await this.requireImage(wanted.image)
    const { name, memoryMib, cpus, egress } = wanted
    const shape: MachineShape = {
      memoryMib, cpus, network: egress === 'allow' ? 'user' : 'none',
      diskMib: await chooseDisk(wanted.diskMib, image), processesMax: wanted.processesMax ?? DEFAULT_PROCESSES_MAX,
    }
    const record: SandboxRecord = {
      name, createdAt: this.now(), image: wanted.image, shape, egress, workingDirectory: image.workingDirectory, machine: null,
      repository: null, nextCheckpoint: 1, approvals: wanted.approvals ?? null, parent: null, ownedByRun: wanted.ownedByRun ?? null,
    }
    return this.start(record, {
      memoryMib, wait: wanted, step: tellBoot(wanted),
      machine: () => this.parts.host.boot({
        image: image.boot, shape, hostname: name, gateway: this.parts.gateways.of(name, egress), purpose: { kind: 'sandbox', name },
        signal: wanted.signal,
      }),
      prepare: async (sandbox, onStep) => {
        if (egress === 'allow') await trustHostCertificates(sandbox.session, this.parts.caBundle)
        const repository = await wanted.fill?.(sandbox, onStep) ?? null
        wanted.signal?.throwIfAborted()
        return repository
      },
    })
  }

  /** Makes a named sandbox of a checkpoint, which is like `like` in everything else. */
  async createFromCheckpoint(name: SandboxName, manifest: CheckpointManifest, like: SandboxRecord): Promise<Sandbox> {
    const { catalog, gateways, host } = this.parts
    const parent = { sandbox: manifest.sandbox, id: manifest.id }
    return this.start({ ...like, name, machine: null, nextCheckpoint: 1, ownedByRun: null, parent }, {
      memoryMib: manifest.shape.memoryMib, step: `cloning ${manifest.id}`,
      machine: () => host.clone({
        snapshot: snapshotOf(manifest, catalog), hostname: name, gateway: gateways.of(name, like.egress), purpose: { kind: 'sandbox', name },
      }),
    })
  }

  private async start(record: SandboxRecord, { memoryMib, wait, step, machine, prepare }: Start): Promise<Sandbox> {
    const { host, paths, release, reserve, store } = this.parts
    const { name } = record
    const cleanup = new CleanupStack()
    try {
      await requireFreeSpace({ what: `sandbox ${name}`, folder: paths.home, neededBytes: START_DISK_BYTES, isLeast: true, kept: 'nothing was begun' })
      await store.create(record)
      return await this.machines.whileStarting(name, async (onStep) => {
        cleanup.defer('forget the sandbox', () => this.forget(name))
        const reservation = await reserve(name, memoryMib, wait)
        cleanup.defer('release its memory', () => release(reservation.id))
        onStep(step)
        const sandbox = await machine()
        cleanup.defer('end its machine', () => host.destroy(sandbox))
        const repository = await prepare?.(sandbox, onStep) ?? record.repository
        // Noted last: a daemon that dies before leaves no sandbox that is only half of what was asked for.
        await this.machines.adopt(name, sandbox, reservation, { repository })
        return sandbox
      })
    } catch (error) {
      await cleanup.run()
      throw await tellDiskFull(error, { what: `sandbox ${name}`, folder: paths.home, kept: 'nothing of it is left behind' })
    }
  }

  /** Clones a running sandbox, which goes on: all from one instant. A clone that fails does not end the others. */
  async fork(name: SandboxName, names: readonly SandboxName[]): Promise<{ name: SandboxName; error: unknown }[]> {
    const record = await this.parts.store.read(name)
    const id = `${name}-fork-${randomBytes(4).toString('hex')}` as CheckpointId
    const { manifest } = await this.checkpoints.take(name, { id, label: null })
    const like = { ...record, createdAt: this.now() }
    try {
      return await Promise.all(names.map(async (clone) => this.createFromCheckpoint(clone, manifest, like)
        .then(() => ({ name: clone, error: null }), (error: unknown) => ({ name: clone, error }))))
    } finally {
      await this.checkpoints.remove(name, id)
    }
  }

  /** Puts a sandbox back to one of its checkpoints, under the same name. The state it was in is gone. */
  async restore(name: SandboxName, id: CheckpointId): Promise<Restored> {
    const restored = await this.restores.restore(name, id)
    await this.checkpoints.collectGarbage()
    return restored
  }

  /**
   * Makes sandboxes of the clones a run keeps and removes the checkpoints of the others. A kept clone whose
   * machine cannot be started now (too little memory, say) stays as a sandbox that can be rewound to.
   */
  async settleKept(plan: RunPlan, clones: readonly { name: SandboxName; checkpoint: CheckpointId; isKept: boolean }[]): Promise<void> {
    const { catalog, onError, store } = this.parts
    const origin = await store.find(plan.sandbox as SandboxName)
    for (const { name, checkpoint, isKept } of clones) {
      if (await store.find(name) !== null) continue
      const manifest = (await catalog.list(name)).find(({ id }) => id === checkpoint)
      if (manifest === undefined) continue
      if (!isKept || origin === null) {
        await catalog.removeAll(name)
        continue
      }
      await store.create({
        ...origin, name, createdAt: manifest.createdAt, machine: null, repository: manifest.repository, nextCheckpoint: 2, ownedByRun: null,
        parent: { sandbox: name, id: checkpoint },
      })
      await this.restore(name, checkpoint).catch((error: unknown) => onError(`the kept clone ${name} does not run`, error))
    }
    await this.checkpoints.collectGarbage()
  }

  /** @throws SANDBOX_UNKNOWN, SANDBOX_WITHOUT_REPOSITORY */
  async repositoryOf(name: SandboxName): Promise<SandboxRepository> {
    const { repository } = await this.parts.store.read(name)
    if (repository !== null) return repository
    throw new Kosa8Error('SANDBOX_WITHOUT_REPOSITORY', `sandbox ${name} was made without a repository: there is nothing to compare`, {
      hint: 'make one with a repository: kosa8 create NAME --repo DIR',
    })
  }

  /**
   * Changes what a sandbox may reach; a machine that runs follows at once.
   * @throws EGRESS_FIXED from or to `allow`: the network card is part of the machine.
   */
  async setEgress(name: SandboxName, egress: string): Promise<void> {
    const { gateways, store } = this.parts
    await this.machines.inTurn(name, async () => {
      const { egress: before } = await store.read(name)
      if (before === egress) return
      if (before === 'allow' || egress === 'allow') throw createFixedEgress(name, before)
      await store.update(name, { egress })
      await this.openGateway(name, egress).catch(async (error: unknown) => {
        gateways.of(name, before)
        await store.update(name, { egress: before })
        throw error
      })
    })
  }

  private async openGateway(name: SandboxName, egress: string): Promise<void> {
    const gateway = this.parts.gateways.of(name, egress)
    const sandbox = this.machines.find(name)
    if (sandbox === null) return
    await sandbox.reach()
    if (await sandbox.setGateway(gateway) && gateway !== null) await trustHostCertificates(sandbox.session, this.parts.caBundle)
  }

  /** What a sandbox tried to reach and was not to, the latest first. */
  blockedOf(name: SandboxName): BlockedAttempt[] {
    return this.parts.gateways.blockedOf(name)
  }

  /** Removes a sandbox with its checkpoints; needs no room on the disk. Nothing happens when there is none. */
  async delete(name: SandboxName): Promise<void> {
    if (await this.parts.store.find(name) === null) return
    await this.machines.inTurn(name, async () => {
      await this.machines.endPresent(name, `sandbox ${name} was removed while this was running`)
      await this.parts.catalog.removeAll(name)
      await this.forget(name)
    })
    await this.checkpoints.collectGarbage()
  }

  /** Removes what was made for a run. */
  async deleteOwnedBy(run: RunId): Promise<void> {
    for (const { name, ownedByRun } of await this.parts.store.list()) if (ownedByRun === run) await this.delete(name)
  }

  /**
   * Finds every sandbox again after a restart, and removes what belongs to nothing.
   * @param reservations what an earlier daemon had promised to sandboxes
   * @param isAlone no worker is alive, so that nothing half made can still be somebody's
   */
  async recover(reservations: readonly Reservation[], { isAlone }: { isAlone: boolean }): Promise<void> {
    const quietAt = isAlone ? Date.now() : undefined
    await this.machines.recover(reservations)
    // A worker takes checkpoints too, but of clones that no sandbox is made of yet.
    const known = new Set((await this.parts.store.list()).map(({ name }) => name))
    await this.parts.catalog.removeUnfinished((name) => isAlone || known.has(name))
    await this.forgetUnfinished()
    const collect = (): Promise<void> => this.checkpoints.collectGarbage({ quietAt })
    if (this.machines.areAllFound) await collect()
    // While a machine has not answered nothing is collected.
    else void this.machines.allAnswered().then(collect).catch((error: unknown) => this.parts.onError('layers nobody needs could not be removed', error))
  }

  /** A sandbox with neither a machine nor a checkpoint was never finished, or has nothing left to go back to. */
  private async forgetUnfinished(): Promise<void> {
    const { catalog, onError, store } = this.parts
    for (const { name, machine } of await store.list()) {
      if (machine !== null || (await catalog.list(name)).length > 0) continue
      onError(`sandbox ${name} has neither a machine nor a checkpoint: it is removed`, null)
      await store.remove(name)
    }
  }

  private async forget(name: SandboxName): Promise<void> {
    await this.parts.store.remove(name)
    this.parts.gateways.forget(name)
  }

  private now(): string {
    return new Date(this.parts.clock.now()).toISOString()
  }
}

/** What booting a machine is called while it goes on. */
export function tellBoot({ image, memoryMib }: Pick<NewSandbox, 'image' | 'memoryMib'>): string {
  return `booting a machine (${image}, ${memoryMib} MiB)`
}

function createFixedEgress(name: SandboxName, before: string): Kosa8Error {
  const what = before === 'allow' ? `sandbox ${name} has a network card` : `sandbox ${name} has no network card`
  return new Kosa8Error('EGRESS_FIXED', `${what}, which is part of its machine: egress cannot change ${before === 'allow' ? 'from' : 'to'} allow`, {
    hint: before === 'allow' ? 'make another sandbox with --egress' : `everything over HTTP and HTTPS is allowed by: kosa8 egress ${name} '*'`,
  })
}

/** MiB of a sandbox's disk. @throws CONFIG_INVALID when it would be smaller than the image's. */
async function chooseDisk(wantedMib: number | undefined, image: ResolvedImage): Promise<number> {
  const imageMib = Math.ceil((await stat(image.boot.rootDisk)).size / MIB)
  if (wantedMib === undefined || wantedMib >= imageMib) return wantedMib ?? imageMib
  throw new Kosa8Error('CONFIG_INVALID', `a disk of ${wantedMib} MiB is too small: the one of image ${image.name} has ${imageMib} MiB`, {
    hint: `ask for at least ${imageMib}M, or leave the size out`,
  })
}
