/**
 * The named sandboxes of this host, live and stored, and their checkpoints.
 *
 * Owns: which name is which machine, memory for each, taking and finding checkpoints, and finding
 * everything again after a restart. Does not own: how a machine works (`sandbox`), what a checkpoint is
 * (`checkpoint`), who asked. One per daemon.
 */
import { randomBytes } from 'node:crypto'
import { stat } from 'node:fs/promises'
import type { CheckpointCatalog } from '../checkpoint/catalog.js'
import { snapshotOf, type CheckpointManifest } from '../checkpoint/manifest.js'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { imageOf, resolveImage, type ResolvedImage } from '../image/store.js'
import type { MachineShape } from '../hypervisor/driver.js'
import type { CheckpointId, ReservationId, RunId, SandboxName } from '../model/ids.js'
import { DEFAULT_PROCESSES_MAX } from '../model/machine-shape.js'
import type { Base, RunPlan } from '../model/run.js'
import type { Reservation } from '../model/reservation.js'
import type { SandboxHost } from '../sandbox/sandbox-host.js'
import type { Sandbox } from '../sandbox/sandbox.js'
import type { MachineRecord, MachineStore } from '../store/machine-store.js'
import type { Paths } from '../store/paths.js'
import type { SandboxRecord, SandboxStore } from '../store/sandbox-store.js'
import { CleanupStack } from '../util/cleanup.js'
import type { Clock } from '../util/clock.js'
import { Turns } from '../util/turns.js'
import { trustHostCertificates } from './host-certificates.js'

/** How often a machine that does not answer is tried after a restart; each try has its own deadline. */
const RECOVER_ATTEMPTS_MAX = 3
const MIB = 1024 * 1024

/** The repository a sandbox was made with. */
export interface SandboxRepository { hostPath: string; path: string; base: Base }

/** What sandboxes are made with. */
export interface SandboxesParts {
  host: SandboxHost
  store: SandboxStore
  machines: MachineStore
  catalog: CheckpointCatalog
  paths: Paths
  clock: Clock
  /** Host file of further certificates the guest is to trust when it may reach the network. */
  caBundle: string | null
  /** With `onWait` it waits and says what for; without, it is there now or not at all. */
  reserve(name: string, memoryMib: number, wait?: { signal?: AbortSignal; onWait?: (message: string) => void }): Promise<Reservation>
  release(id: ReservationId): Promise<void>
  onError: (message: string, error: unknown) => void
}

/** A sandbox to be made. */
export interface NewSandbox {
  name: SandboxName
  image: string
  memoryMib: number
  cpus: number
  /** Size of the disk; the image's by default. */
  diskMib?: number | undefined
  /** Processes of all its commands together; {@link DEFAULT_PROCESSES_MAX} by default. */
  processesMax?: number | undefined
  egress: 'deny' | 'allow'
  /** Public key, PEM, of the person whose approval guarded calls need. */
  approvals?: string
  ownedByRun?: RunId
  signal?: AbortSignal
  /** Given: waits for memory, and is told what it waits for. */
  onWait?: (message: string) => void
}

/** What a checkpoint is taken with; by default its id is `<sandbox>-ckpt-<n>`. */
export interface WantedCheckpoint {
  id?: CheckpointId
  label: string | null
  repository?: SandboxRepository
}

/** A checkpoint just taken. */
export interface TakenCheckpoint {
  id: CheckpointId
  label: string | null
  /** Milliseconds the sandbox stood still. */
  pauseMs: number
  manifest: CheckpointManifest
}

interface Live {
  sandbox: Sandbox
  reservation: Reservation
}

/** Sandboxes by name. Unknown names: SANDBOX_UNKNOWN. */
export class Sandboxes {
  private readonly live = new Map<SandboxName, Live>()
  /** Of one sandbox, checkpoints are taken, restored and removed one after the other. */
  private readonly turns = new Turns()

  constructor(private readonly parts: SandboxesParts) {}

  async list(): Promise<SandboxRecord[]> {
    return this.parts.store.list()
  }

  async read(name: SandboxName): Promise<SandboxRecord> {
    return this.parts.store.read(name)
  }

  /** The running machine of a sandbox. @throws MACHINE_GONE when it has none. */
  async machineOf(name: SandboxName): Promise<Sandbox> {
    const live = this.live.get(name)
    if (live !== undefined) return live.sandbox
    await this.parts.store.read(name)
    throw new Kosa8Error('MACHINE_GONE', `the machine of sandbox ${name} has ended`, {
      hint: `go back to a checkpoint with: kosa8 rewind ${name}, or remove it with: kosa8 rm ${name}`,
    })
  }

  /** Null when it does not run. */
  findMachine(name: SandboxName): Sandbox | null {
    return this.live.get(name)?.sandbox ?? null
  }

  async requireImage(name: string): Promise<ResolvedImage> {
    return resolveImage(name, this.parts.paths.images)
  }

  /** Boots a sandbox. Nothing of it is left when this fails. */
  async create(wanted: NewSandbox): Promise<Sandbox> {
    const image = await this.requireImage(wanted.image)
    const shape: MachineShape = {
      memoryMib: wanted.memoryMib, cpus: wanted.cpus, network: wanted.egress === 'allow' ? 'user' : 'none',
      diskMib: await chooseDisk(wanted.diskMib, image), processesMax: wanted.processesMax ?? DEFAULT_PROCESSES_MAX,
    }
    const cleanup = new CleanupStack()
    try {
      await this.parts.store.create({
        name: wanted.name, createdAt: new Date(this.parts.clock.now()).toISOString(), image: wanted.image, shape,
        egress: wanted.egress, workingDirectory: image.workingDirectory, machine: null, repository: null, nextCheckpoint: 1, approvals: wanted.approvals ?? null,
        ownedByRun: wanted.ownedByRun ?? null,
      })
      cleanup.defer('forget the sandbox', () => this.parts.store.remove(wanted.name))
      const reservation = await this.parts.reserve(wanted.name, wanted.memoryMib, {
        ...(wanted.signal === undefined ? {} : { signal: wanted.signal }),
        ...(wanted.onWait === undefined ? {} : { onWait: wanted.onWait }),
      })
      cleanup.defer('release its memory', () => this.parts.release(reservation.id))
      const sandbox = await this.parts.host.boot({
        image: image.boot, shape, hostname: wanted.name, purpose: { kind: 'sandbox', name: wanted.name }, signal: wanted.signal,
      })
      cleanup.defer('end its machine', () => this.parts.host.destroy(sandbox))
      if (wanted.egress === 'allow') await trustHostCertificates(sandbox.session, this.parts.caBundle)
      wanted.signal?.throwIfAborted()
      await this.adopt(wanted.name, sandbox, reservation)
      return sandbox
    } catch (error) {
      await cleanup.run()
      throw error
    }
  }

  /** Notes which repository lies in a sandbox. */
  async setRepository(name: SandboxName, repository: SandboxRepository): Promise<void> {
    await this.parts.store.update(name, { repository })
  }

  /** @throws SANDBOX_UNKNOWN, SANDBOX_WITHOUT_REPOSITORY */
  async repositoryOf(name: SandboxName): Promise<SandboxRepository> {
    const { repository } = await this.parts.store.read(name)
    if (repository !== null) return repository
    throw new Kosa8Error('SANDBOX_WITHOUT_REPOSITORY', `sandbox ${name} was made without a repository: there is nothing to compare`, {
      hint: 'make one with a repository: kosa8 create NAME --repo DIR',
    })
  }

  /** Takes a checkpoint of a live sandbox, which goes on running. */
  async checkpoint(name: SandboxName, wanted: WantedCheckpoint): Promise<TakenCheckpoint> {
    return this.turns.take(name, () => this.takeCheckpoint(name, wanted))
  }

  private async takeCheckpoint(name: SandboxName, wanted: WantedCheckpoint): Promise<TakenCheckpoint> {
    const sandbox = await this.machineOf(name)
    const record = await this.parts.store.read(name)
    const id = wanted.id ?? `${name}-ckpt-${record.nextCheckpoint}` as CheckpointId
    await this.parts.store.update(name, { nextCheckpoint: numberAfter(name, id, record.nextCheckpoint) })
    const { catalog, clock } = this.parts
    const directory = await catalog.prepare(name, id)
    try {
      const report = await sandbox.snapshot(directory)
      await this.parts.host.note(sandbox)
      const manifest = await catalog.commit({
        id, sandbox: name, label: wanted.label, createdAt: new Date(clock.now()).toISOString(),
        image: imageOf(report.snapshot.image), snapshot: report.snapshot,
        repository: wanted.repository ?? record.repository, pauseMs: report.frozenMs, privateBytes: report.privateBytes,
      })
      return { id, label: wanted.label, pauseMs: report.frozenMs, manifest }
    } catch (error) {
      await catalog.discard(name, id)
      throw error
    }
  }

  async checkpoints(name: SandboxName): Promise<CheckpointManifest[]> {
    return this.parts.catalog.list(name)
  }

  /** By id, or by label without regard to case; the newest of several. @throws CHECKPOINT_UNKNOWN, CHECKPOINT_CORRUPT */
  async findCheckpoint(name: SandboxName, selector: string, options: { verify?: boolean } = {}): Promise<CheckpointManifest> {
    const all = await this.parts.catalog.list(name)
    const wanted = selector.toLowerCase()
    const found = all.find(({ id }) => id === selector) ?? all.findLast(({ label }) => label?.toLowerCase() === wanted)
    if (found === undefined) {
      throw new Kosa8Error('CHECKPOINT_UNKNOWN', `sandbox ${name} has no checkpoint ${JSON.stringify(selector)}`, {
        hint: all.length === 0 ? `take one with: kosa8 checkpoint ${name}` : `it has: ${all.map(({ id }) => id).join(', ')}`,
      })
    }
    if (options.verify === true) await this.parts.catalog.verify(name, found.id)
    return this.parts.catalog.load(name, found.id)
  }

  async removeCheckpoint(sandbox: string, id: string): Promise<void> {
    await this.turns.take(sandbox, () => this.parts.catalog.remove(sandbox as SandboxName, id as CheckpointId))
    await this.collectGarbage()
  }

  /** Lends a clone of a checkpoint for a while. */
  async withClone<T>(name: SandboxName, id: string, signal: AbortSignal, work: (clone: Sandbox) => Promise<T>): Promise<T> {
    const manifest = await this.parts.catalog.load(name, id as CheckpointId)
    const reservation = await this.parts.reserve(`${name} (reading it)`, manifest.shape.memoryMib, { signal, onWait: () => undefined })
    try {
      const clone = await this.parts.host.clone({
        snapshot: snapshotOf(manifest, this.parts.catalog), hostname: name, purpose: { kind: 'sandbox', name },
      })
      try {
        return await work(clone)
      } finally {
        await this.parts.host.destroy(clone)
      }
    } finally {
      await this.parts.release(reservation.id)
    }
  }

  /**
   * Makes sandboxes of the clones a run keeps and removes the checkpoints of the others. A kept clone whose
   * machine cannot be started now (too little memory, say) stays as a sandbox that can be rewound to.
   */
  async settleKept(plan: RunPlan, clones: readonly { name: SandboxName; checkpoint: CheckpointId; isKept: boolean }[]): Promise<void> {
    const origin = await this.parts.store.find(plan.sandbox as SandboxName)
    for (const { name, checkpoint, isKept } of clones) {
      if (await this.parts.store.find(name) !== null) continue
      const manifest = (await this.parts.catalog.list(name)).find(({ id }) => id === checkpoint)
      if (manifest === undefined) continue
      if (!isKept || origin === null) {
        await this.parts.catalog.removeAll(name)
        continue
      }
      await this.parts.store.create({
        ...origin, name, createdAt: manifest.createdAt, machine: null, repository: manifest.repository, nextCheckpoint: 2, ownedByRun: null,
      })
      await this.restore(name, checkpoint).catch((error: unknown) => this.parts.onError(`the kept clone ${name} does not run`, error))
    }
    await this.collectGarbage()
  }

  /** Clones a running sandbox, which goes on: all from one instant. A clone that fails does not end the others. */
  async fork(name: SandboxName, names: readonly SandboxName[]): Promise<{ name: SandboxName; error: unknown }[]> {
    const record = await this.parts.store.read(name)
    const id = `${name}-fork-${randomBytes(4).toString('hex')}` as CheckpointId
    const { manifest } = await this.checkpoint(name, { id, label: null })
    const like = { ...record, createdAt: new Date(this.parts.clock.now()).toISOString() }
    try {
      return await Promise.all(names.map(async (clone) => this.createFromCheckpoint(clone, manifest, like)
        .then(() => ({ name: clone, error: null }), (error: unknown) => ({ name: clone, error }))))
    } finally {
      await this.removeCheckpoint(name, id)
    }
  }

  /** Makes a named sandbox of a checkpoint. */
  async createFromCheckpoint(name: SandboxName, manifest: CheckpointManifest, like: SandboxRecord): Promise<Sandbox> {
    const cleanup = new CleanupStack()
    try {
      await this.parts.store.create({ ...like, name, machine: null, nextCheckpoint: 1, ownedByRun: null })
      cleanup.defer('forget the sandbox', () => this.parts.store.remove(name))
      const reservation = await this.parts.reserve(name, manifest.shape.memoryMib)
      cleanup.defer('release its memory', () => this.parts.release(reservation.id))
      const sandbox = await this.parts.host.clone({
        snapshot: snapshotOf(manifest, this.parts.catalog), hostname: name, purpose: { kind: 'sandbox', name },
      })
      await this.adopt(name, sandbox, reservation)
      return sandbox
    } catch (error) {
      await cleanup.run()
      throw error
    }
  }

  /** Puts a sandbox back to one of its checkpoints, under the same name. The state it was in is gone. */
  async restore(name: SandboxName, id: CheckpointId): Promise<{ manifest: CheckpointManifest; restoreMs: number }> {
    return this.turns.take(name, () => this.restoreNow(name, id))
  }

  private async restoreNow(name: SandboxName, id: CheckpointId): Promise<{ manifest: CheckpointManifest; restoreMs: number }> {
    const startedAt = performance.now()
    const manifest = await this.parts.catalog.load(name, id)
    const reservation = this.live.get(name)?.reservation ?? await this.parts.reserve(name, manifest.shape.memoryMib)
    await this.endLive(name, `sandbox ${name} was rewound to ${id} while this was running`)
    const sandbox = await this.parts.host.clone({
      snapshot: snapshotOf(manifest, this.parts.catalog), hostname: name, purpose: { kind: 'sandbox', name },
    }).catch(async (error: unknown) => {
      await this.parts.release(reservation.id)
      throw error
    })
    await this.adopt(name, sandbox, reservation)
    return { manifest, restoreMs: performance.now() - startedAt }
  }

  /** Ends the machine of a sandbox; its record and checkpoints stay. */
  async endMachine(name: SandboxName): Promise<void> {
    const reservation = this.live.get(name)?.reservation
    await this.endLive(name, `sandbox ${name} has no machine any more: it ended while this was running`)
    if (reservation !== undefined) await this.parts.release(reservation.id)
    await this.parts.store.update(name, { machine: null })
  }

  /** Removes a sandbox with its checkpoints. Nothing happens when there is none. */
  async delete(name: SandboxName): Promise<void> {
    if (await this.parts.store.find(name) === null) return
    await this.turns.take(name, async () => {
      await this.endMachine(name)
      await this.parts.catalog.removeAll(name)
      await this.parts.store.remove(name)
    })
    await this.collectGarbage()
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
  async recover(reservations: Reservation[], { isAlone }: { isAlone: boolean }): Promise<void> {
    const records = new Map((await this.parts.machines.list()).map((record) => [record.id, record]))
    const unanswered = new Set<string>()
    for (const { name, machine } of await this.parts.store.list()) {
      const record = machine === null ? undefined : records.get(machine)
      if (record === undefined) continue
      const reservation = reservations.find(({ holder }) => holder === `sandbox ${name}`)
      try {
        const sandbox = await this.recoverPatiently(record, name)
        if (sandbox === null) await this.forgetMachine(name)
        else await this.adopt(name, sandbox, reservation ?? await this.parts.reserve(name, sandbox.machine.handle.shape.memoryMib))
      } catch (error) {
        // A machine that is there and does not answer is somebody's work: the next daemon may reach it.
        unanswered.add(record.id).add(reservation?.id ?? record.id)
        this.parts.onError(`sandbox ${name} could not be found again`, error)
      }
    }
    for (const reservation of reservations) {
      const isUsed = [...this.live.values()].some((live) => live.reservation.id === reservation.id)
      if (!isUsed && !unanswered.has(reservation.id)) await this.parts.release(reservation.id)
    }
    const known = new Set<string>([...unanswered, ...[...this.live.values()].map(({ sandbox }) => sandbox.machine.handle.id)])
    // Trials of a worker that is alive are spared: their owner is.
    await this.parts.host.reapWhere(({ id, purpose }) => purpose.kind === 'trial' || !known.has(id))
    if (isAlone) await this.parts.catalog.removeUnfinished()
    await this.forgetUnfinished()
    await this.collectGarbage({ isQuiet: isAlone })
  }

  /** A machine on a busy host may need longer than one deadline to answer its new owner. */
  private async recoverPatiently(record: MachineRecord, name: SandboxName): Promise<Sandbox | null> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.parts.host.recover(record, name)
      } catch (error) {
        if (attempt >= RECOVER_ATTEMPTS_MAX) throw error
        this.parts.onError(`sandbox ${name} does not answer yet`, error)
      }
    }
  }

  /** A sandbox with neither a machine nor a checkpoint was never finished, or has nothing left to go back to. */
  private async forgetUnfinished(): Promise<void> {
    for (const { name, machine } of await this.parts.store.list()) {
      if (machine !== null || (await this.parts.catalog.list(name)).length > 0) continue
      this.parts.onError(`sandbox ${name} has neither a machine nor a checkpoint: it is removed`, null)
      await this.parts.store.remove(name)
    }
  }

  /** Lets go of every machine; they go on running. */
  detachAll(): void {
    for (const { sandbox } of this.live.values()) sandbox.detach()
    this.live.clear()
  }

  /** Removes layers and leftovers that nothing refers to. */
  async collectGarbage(options: { isQuiet?: boolean } = {}): Promise<void> {
    const handles = (await this.parts.machines.list()).map(({ handle }) => handle).filter((handle) => handle !== null)
    await this.parts.catalog.collectGarbage(handles, options)
  }

  private async adopt(name: SandboxName, sandbox: Sandbox, reservation: Reservation): Promise<void> {
    await this.parts.store.update(name, { machine: sandbox.machine.handle.id })
    this.live.set(name, { sandbox, reservation })
    void sandbox.machine.exited.then(async (exit) => {
      if (exit.expected || this.live.get(name)?.sandbox !== sandbox) return
      this.parts.onError(`the machine of sandbox ${name} ended: ${exit.message}`, null)
      await this.endMachine(name)
    }).catch((error: unknown) => this.parts.onError(`sandbox ${name} could not be tidied up`, error))
  }

  private async endLive(name: SandboxName, reason: string): Promise<void> {
    const live = this.live.get(name)
    this.live.delete(name)
    if (live !== undefined) await this.parts.host.destroy(live.sandbox, reason)
  }

  private async forgetMachine(name: SandboxName): Promise<void> {
    await this.parts.store.update(name, { machine: null })
    await this.parts.host.reapWhere(({ purpose }) => purpose.kind === 'sandbox' && purpose.name === name)
  }
}

/** The number for the next checkpoint, once `id` is in use: a number is never used twice. */
function numberAfter(name: SandboxName, id: CheckpointId, next: number): number {
  const prefix = `${name}-ckpt-`
  const number = id.startsWith(prefix) ? Number(id.slice(prefix.length)) : 0
  return Number.isSafeInteger(number) ? Math.max(next, number + 1) : next
}

/** MiB of a sandbox's disk. @throws CONFIG_INVALID when it would be smaller than the image's. */
async function chooseDisk(wantedMib: number | undefined, image: ResolvedImage): Promise<number> {
  const imageMib = Math.ceil((await stat(image.boot.rootDisk)).size / MIB)
  if (wantedMib === undefined || wantedMib >= imageMib) return wantedMib ?? imageMib
  throw new Kosa8Error('CONFIG_INVALID', `a disk of ${wantedMib} MiB is too small: the one of image ${image.name} has ${imageMib} MiB`, {
    hint: `ask for at least ${imageMib}M, or leave the size out`,
  })
}
