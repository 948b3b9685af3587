/**
 * The named sandboxes of this host, live and stored, and their checkpoints.
 *
 * Owns: which name is which machine, memory for each, taking and finding checkpoints, and finding
 * everything again after a restart. Does not own: how a machine works (`sandbox`), what a checkpoint is
 * (`checkpoint`), who asked. One per daemon.
 */
import { randomBytes } from 'node:crypto'
import { stat } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import type { CheckpointCatalog } from '../checkpoint/catalog.js'
import { snapshotOf, type CheckpointManifest } from '../checkpoint/manifest.js'
import { Kosa8Error, toKosa8Error } from '../errors/kosa8-error.js'
import { imageOf, resolveImage, type ResolvedImage } from '../image/store.js'
import type { Machine, MachineShape } from '../hypervisor/driver.js'
import type { BlockedAttempt } from '../model/egress.js'
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
import { describeDiskFull, readFreeSpace, tellDiskFull } from '../util/disk-space.js'
import { Turns } from '../util/turns.js'
import type { Gateways } from './gateways.js'
import { trustHostCertificates } from './host-certificates.js'
import { MachineSearch } from './machine-search.js'

const MIB = 1024 * 1024
/** How long a start waits for machines to answer before others are served; those that are late are found later, milliseconds. */
const RECOVER_PATIENCE_MS = 5_000
/** How long a call waits for a machine that has not answered since the restart, milliseconds. */
const ANSWER_PATIENCE_MS = 30_000
/** What a machine that starts writes to its disk at least, bytes; with less it would stand still in its boot. */
const START_DISK_BYTES = 16 * MIB

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
  gateways: Gateways
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
  /** Normal form of a rule. */
  egress: string
  /** Public key, PEM, of the person whose approval guarded calls need. */
  approvals?: string
  ownedByRun?: RunId
  signal?: AbortSignal
  /** Given: waits for memory, and is told what it waits for. */
  onWait?: (message: string) => void
  /** Puts a repository into the machine; the sandbox is there only once that is done. */
  fill?: (sandbox: Sandbox) => Promise<SandboxRepository>
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

/** What a sandbox runs on at a moment, in our hands or not. */
interface Present {
  /** Memory promised to it; null: none, or not known. */
  reservation: Reservation | null
  /** Null when it has no machine, or one that does not answer. */
  machine: Machine | null
  /** Ends it, whatever it is; callers of its commands are told `reason`. The reservation stays. */
  end(reason: string): Promise<void>
}

/** Sandboxes by name. Unknown names: SANDBOX_UNKNOWN. */
export class Sandboxes {
  private readonly live = new Map<SandboxName, Live>()
  /** Being made: not there before that is done. */
  private readonly starting = new Set<SandboxName>()
  /** Of machines that have not answered this daemon yet. */
  private readonly searches = new Map<SandboxName, MachineSearch>()
  /** Of one sandbox, checkpoints are taken, restored and removed one after the other. */
  private readonly turns = new Turns()

  constructor(private readonly parts: SandboxesParts) {}

  async list(): Promise<SandboxRecord[]> {
    return this.parts.store.list()
  }

  async read(name: SandboxName): Promise<SandboxRecord> {
    return this.parts.store.read(name)
  }

  /** The running machine of a sandbox. @throws MACHINE_GONE when it has none, GUEST_UNREACHABLE when it does not answer. */
  async machineOf(name: SandboxName): Promise<Sandbox> {
    await this.waitForAnswer([name], ANSWER_PATIENCE_MS)
    const live = this.live.get(name)
    if (live !== undefined) {
      await live.sandbox.reach()
      return live.sandbox
    }
    await this.parts.store.read(name)
    if (this.starting.has(name)) {
      throw new Kosa8Error('GUEST_UNREACHABLE', `sandbox ${name} is still being made`, { hint: 'try again once `kosa8 ls` shows it as running' })
    }
    if (this.searches.has(name)) {
      throw new Kosa8Error('GUEST_UNREACHABLE', `the machine of sandbox ${name} runs, but has not answered since the daemon was started`, {
        hint: `it is tried again and again: wait, or go back to a checkpoint with: kosa8 rewind ${name}`,
      })
    }
    throw new Kosa8Error('MACHINE_GONE', `the machine of sandbox ${name} has ended`, {
      hint: `go back to a checkpoint with: kosa8 rewind ${name}, or remove it with: kosa8 rm ${name}`,
    })
  }

  /** Null when it does not run, or does not answer. */
  findMachine(name: SandboxName): Sandbox | null {
    return this.live.get(name)?.sandbox ?? null
  }

  /** What there is to say of a sandbox that {@link findMachine} finds no machine of. */
  stateOf(name: SandboxName): 'starting' | 'unreachable' | 'gone' {
    if (this.starting.has(name)) return 'starting'
    return this.searches.has(name) ? 'unreachable' : 'gone'
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
      await this.requireRoom(wanted.name)
      await this.parts.store.create({
        name: wanted.name, createdAt: new Date(this.parts.clock.now()).toISOString(), image: wanted.image, shape,
        egress: wanted.egress, workingDirectory: image.workingDirectory, machine: null, repository: null, nextCheckpoint: 1, approvals: wanted.approvals ?? null,
        parent: null, ownedByRun: wanted.ownedByRun ?? null,
      })
      this.starting.add(wanted.name)
      cleanup.defer('forget the sandbox', () => this.forget(wanted.name))
      const reservation = await this.parts.reserve(wanted.name, wanted.memoryMib, {
        ...(wanted.signal === undefined ? {} : { signal: wanted.signal }),
        ...(wanted.onWait === undefined ? {} : { onWait: wanted.onWait }),
      })
      cleanup.defer('release its memory', () => this.parts.release(reservation.id))
      const sandbox = await this.parts.host.boot({
        image: image.boot, shape, hostname: wanted.name, gateway: this.parts.gateways.of(wanted.name, wanted.egress),
        purpose: { kind: 'sandbox', name: wanted.name }, signal: wanted.signal,
      })
      cleanup.defer('end its machine', () => this.parts.host.destroy(sandbox))
      if (wanted.egress === 'allow') await trustHostCertificates(sandbox.session, this.parts.caBundle)
      const repository = await wanted.fill?.(sandbox) ?? null
      wanted.signal?.throwIfAborted()
      // Noted last: a daemon that dies before leaves no sandbox that is only half of what was asked for.
      await this.adopt(wanted.name, sandbox, reservation, { repository })
      return sandbox
    } catch (error) {
      await cleanup.run()
      throw await this.tellDiskFull(error, `sandbox ${wanted.name}`, 'nothing of it is left behind')
    } finally {
      this.starting.delete(wanted.name)
    }
  }

  /**
   * Changes what a sandbox may reach; a machine that runs follows at once.
   * @throws EGRESS_FIXED from or to `allow`: the network card is part of the machine.
   */
  async setEgress(name: SandboxName, egress: string): Promise<void> {
    await this.turns.take(name, async () => {
      const { egress: before } = await this.parts.store.read(name)
      if (before === egress) return
      if (before === 'allow' || egress === 'allow') throw createFixedEgress(name, before)
      await this.parts.store.update(name, { egress })
      await this.openGateway(name, egress).catch(async (error: unknown) => {
        this.parts.gateways.of(name, before)
        await this.parts.store.update(name, { egress: before })
        throw error
      })
    })
  }

  private async openGateway(name: SandboxName, egress: string): Promise<void> {
    const gateway = this.parts.gateways.of(name, egress)
    const sandbox = this.live.get(name)?.sandbox
    if (sandbox === undefined) return
    await sandbox.reach()
    if (await sandbox.setGateway(gateway) && gateway !== null) await trustHostCertificates(sandbox.session, this.parts.caBundle)
  }

  /** What a sandbox tried to reach and was not to, the latest first. */
  blockedOf(name: SandboxName): BlockedAttempt[] {
    return this.parts.gateways.blockedOf(name)
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
    const { catalog, clock, store } = this.parts
    let isOurs = false
    try {
      const directory = await catalog.prepare(name, id)
      isOurs = true
      await store.update(name, { nextCheckpoint: numberAfter(name, id, record.nextCheckpoint) })
      const report = await sandbox.snapshot(directory).finally(() => this.note(sandbox))
      const manifest = await catalog.commit({
        id, sandbox: name, label: wanted.label, createdAt: new Date(clock.now()).toISOString(),
        image: imageOf(report.snapshot.image), snapshot: report.snapshot, parent: record.parent,
        repository: wanted.repository ?? record.repository, pauseMs: report.frozenMs, privateBytes: report.privateBytes,
      })
      await store.update(name, { parent: { sandbox: name, id } })
      return { id, label: wanted.label, pauseMs: report.frozenMs, manifest }
    } catch (error) {
      if (isOurs) await catalog.discard(name, id)
      throw await this.tellDiskFull(error, `checkpoint ${id}`, `${name} goes on, and its other checkpoints are as they were`)
    }
  }

  /** The journal of a machine is of use when everybody else has forgotten it: that it could not be written ends nothing. */
  private async note(sandbox: Sandbox): Promise<void> {
    await this.parts.host.note(sandbox).catch((error: unknown) => {
      this.parts.onError(`the journal of ${sandbox.hostname}'s machine could not be written`, error)
    })
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

  /** Removes a checkpoint, a damaged one too. @returns false when there is no such checkpoint. */
  async removeCheckpoint(name: string, id: string): Promise<boolean> {
    const wasThere = await this.turns.take(name, () => this.parts.catalog.remove(name as SandboxName, id as CheckpointId))
    await this.collectGarbage()
    return wasThere
  }

  /** Lends a clone of a checkpoint for a while. */
  async withClone<T>(name: SandboxName, id: string, signal: AbortSignal, work: (clone: Sandbox) => Promise<T>): Promise<T> {
    const manifest = await this.parts.catalog.load(name, id as CheckpointId)
    const reservation = await this.parts.reserve(`${name} (reading it)`, manifest.shape.memoryMib, { signal, onWait: () => undefined })
    try {
      const clone = await this.parts.host.clone({
        snapshot: snapshotOf(manifest, this.parts.catalog), hostname: name, gateway: null, purpose: { kind: 'sandbox', name },
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
        parent: { sandbox: name, id: checkpoint },
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
      await this.requireRoom(name)
      await this.parts.store.create({
        ...like, name, machine: null, nextCheckpoint: 1, ownedByRun: null, parent: { sandbox: manifest.sandbox, id: manifest.id },
      })
      this.starting.add(name)
      cleanup.defer('forget the sandbox', () => this.forget(name))
      const reservation = await this.parts.reserve(name, manifest.shape.memoryMib)
      cleanup.defer('release its memory', () => this.parts.release(reservation.id))
      const sandbox = await this.parts.host.clone({
        snapshot: snapshotOf(manifest, this.parts.catalog), hostname: name, gateway: this.parts.gateways.of(name, like.egress),
        purpose: { kind: 'sandbox', name },
      })
      cleanup.defer('end its machine', () => this.parts.host.destroy(sandbox))
      await this.adopt(name, sandbox, reservation)
      return sandbox
    } catch (error) {
      await cleanup.run()
      throw await this.tellDiskFull(error, `sandbox ${name}`, 'nothing of it is left behind')
    } finally {
      this.starting.delete(name)
    }
  }

  /** Puts a sandbox back to one of its checkpoints, under the same name. The state it was in is gone. */
  async restore(name: SandboxName, id: CheckpointId): Promise<{ manifest: CheckpointManifest; restoreMs: number }> {
    const restored = await this.turns.take(name, () => this.restoreNow(name, id))
    await this.collectGarbage()
    return restored
  }

  /**
   * What can be checked is checked before anything ends. Then, where there is memory for both, the machine is made
   * anew beside the present one, which stands still and goes on if that fails.
   */
  private async restoreNow(name: SandboxName, id: CheckpointId): Promise<{ manifest: CheckpointManifest; restoreMs: number }> {
    const startedAt = performance.now()
    const manifest = await this.parts.catalog.load(name, id)
    await this.parts.host.assertRestorable(snapshotOf(manifest, this.parts.catalog))
    const present = await this.presentOf(name)
    if (!await this.replaceBeside(name, manifest, present)) {
      const reservation = present.reservation ?? await this.parts.reserve(name, manifest.shape.memoryMib)
      await present.end(rewound(name, id))
      await this.startRestored(name, manifest, reservation)
        .catch(async (error: unknown) => {
          await this.parts.store.update(name, { machine: null }).catch(() => undefined) // Found out by the next start, too.
          throw await this.tellDiskFull(error, `rewinding ${name}`, `its checkpoint ${id} is still there`)
        })
    }
    return { manifest, restoreMs: performance.now() - startedAt }
  }

  /** @returns false when there is no room for two machines, in memory or on disk: nothing has changed then. */
  private async replaceBeside(name: SandboxName, manifest: CheckpointManifest, present: Present): Promise<boolean> {
    const { machine } = present
    if (machine === null || present.reservation === null) return false
    // Not waited for: a machine that hangs must not keep its user from going back.
    const stopped = machine.pause().catch(() => undefined)
    try {
      const reservation = await this.parts.reserve(name, manifest.shape.memoryMib)
      await this.startRestored(name, manifest, reservation)
    } catch (error) {
      const { code } = toKosa8Error(error)
      if (code === 'MEMORY_INSUFFICIENT' || code === 'DISK_FULL') return false
      void stopped.then(() => machine.resume()).catch(() => undefined) // It has ended.
      throw error
    }
    await present.end(rewound(name, manifest.id))
    await this.parts.release(present.reservation.id)
    return true
  }

  /** Starts a sandbox's machine from a checkpoint; its memory is given back when that fails. */
  private async startRestored(name: SandboxName, manifest: CheckpointManifest, reservation: Reservation): Promise<void> {
    const cleanup = new CleanupStack()
    cleanup.defer('release its memory', () => this.parts.release(reservation.id))
    try {
      const { egress } = await this.parts.store.read(name)
      const sandbox = await this.parts.host.clone({
        snapshot: snapshotOf(manifest, this.parts.catalog), hostname: name, gateway: this.parts.gateways.of(name, egress),
        purpose: { kind: 'sandbox', name },
      })
      cleanup.defer('end its machine', () => this.parts.host.destroy(sandbox))
      await this.adopt(name, sandbox, reservation, { parent: { sandbox: manifest.sandbox, id: manifest.id } })
    } catch (error) {
      await cleanup.run()
      throw error
    }
  }

  /** Ends the machine of a sandbox; its record and checkpoints stay. */
  async endMachine(name: SandboxName): Promise<void> {
    const present = await this.presentOf(name)
    await present.end(`sandbox ${name} has no machine any more: it ended while this was running`)
    if (present.reservation !== null) await this.parts.release(present.reservation.id)
    await this.parts.store.update(name, { machine: null })
  }

  /** Removes a sandbox with its checkpoints; needs no room on the disk. Nothing happens when there is none. */
  async delete(name: SandboxName): Promise<void> {
    if (await this.parts.store.find(name) === null) return
    await this.turns.take(name, async () => {
      const present = await this.presentOf(name)
      await present.end(`sandbox ${name} was removed while this was running`)
      if (present.reservation !== null) await this.parts.release(present.reservation.id)
      await this.parts.catalog.removeAll(name)
      await this.forget(name)
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
    const known = new Set<string>()
    for (const { name, machine } of await this.parts.store.list()) {
      if (machine === null) continue
      const record = records.get(machine)
      if (record === undefined) {
        await this.parts.store.update(name, { machine: null })
        continue
      }
      known.add(record.id)
      this.seek(name, record, reservations.find(({ holder }) => holder === `sandbox ${name}`) ?? null)
    }
    const promised = new Set([...this.searches.values()].map(({ reservation }) => reservation?.id))
    await this.waitForAnswer([...this.searches.keys()], RECOVER_PATIENCE_MS)
    for (const { id } of reservations) if (!promised.has(id)) await this.parts.release(id)
    // Trials of a worker that is alive are spared: their owner is.
    await this.parts.host.reapWhere(({ id, purpose }) => purpose.kind === 'trial' || !known.has(id))
    if (isAlone) await this.parts.catalog.removeUnfinished()
    await this.forgetUnfinished()
    await this.collectGarbage({ isQuiet: isAlone })
  }

  /** Looks for a sandbox's machine until it answers or is gone. */
  private seek(name: SandboxName, record: MachineRecord, reservation: Reservation | null): void {
    const { host, onError } = this.parts
    const search: MachineSearch = new MachineSearch({
      host, record, reservation,
      options: async () => ({ hostname: name, gateway: this.parts.gateways.of(name, (await this.parts.store.read(name)).egress) }),
      onFailedTry: (error) => onError(`sandbox ${name} does not answer yet`, error),
      onEnd: async (sandbox) => {
        try {
          if (sandbox === null) await this.forgetMachine(name, record, reservation)
          else await this.adopt(name, sandbox, reservation ?? await this.parts.reserve(name, sandbox.machine.handle.shape.memoryMib))
        } catch (error) {
          sandbox?.detach()
          onError(`sandbox ${name} could not be taken over`, error)
        } finally {
          if (this.searches.get(name) === search) this.searches.delete(name)
        }
      },
    })
    this.searches.set(name, search)
  }

  /** Waits until none of these sandboxes is being looked for any more, at most so long. */
  private async waitForAnswer(names: readonly SandboxName[], ms: number): Promise<void> {
    const searches = names.map((name) => this.searches.get(name)?.ended).filter((ended) => ended !== undefined)
    if (searches.length === 0) return
    const over = new AbortController()
    await Promise.race([Promise.all(searches), delay(ms, undefined, { signal: over.signal }).catch(() => undefined)])
    over.abort()
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
    for (const search of this.searches.values()) search.leave()
    for (const { sandbox } of this.live.values()) sandbox.detach()
    this.live.clear()
  }

  /** Removes layers and leftovers that nothing refers to. */
  async collectGarbage(options: { isQuiet?: boolean } = {}): Promise<void> {
    // The journal of a machine that has not answered may be of before a snapshot: which layer it writes to is not known.
    if (this.searches.size > 0) return
    const journalled = (await this.parts.machines.list()).map(({ handle }) => handle).filter((handle) => handle !== null)
    const live = [...this.live.values()].map(({ sandbox }) => sandbox.machine.handle)
    await this.parts.catalog.collectGarbage([...journalled, ...live], options)
  }

  private async presentOf(name: SandboxName): Promise<Present> {
    const { host, store, machines } = this.parts
    const live = this.live.get(name)
    const search = this.searches.get(name)
    const { machine } = await store.read(name)
    const record = machine === null ? null : await machines.read(machine)
    return {
      reservation: live?.reservation ?? search?.reservation ?? null,
      machine: live?.sandbox.machine ?? null,
      end: async (reason) => {
        if (this.live.get(name) === live) this.live.delete(name)
        if (this.searches.get(name) === search) this.searches.delete(name)
        if (live !== undefined) await host.destroy(live.sandbox, reason)
        else if (search !== undefined) await search.endMachine()
        else if (record !== null) await host.reap(record)
      },
    }
  }

  private async adopt(
    name: SandboxName, sandbox: Sandbox, reservation: Reservation, more: Partial<Pick<SandboxRecord, 'repository' | 'parent'>> = {},
  ): Promise<void> {
    await this.parts.store.update(name, { ...more, machine: sandbox.machine.handle.id })
    if (sandbox.gatewayIsNew && sandbox.session.hasGateway) {
      await trustHostCertificates(sandbox.session, this.parts.caBundle)
        .catch((error: unknown) => this.parts.onError(`sandbox ${name} does not know the host's certificates`, error))
    }
    this.live.set(name, { sandbox, reservation })
    void sandbox.machine.exited.then(async (exit) => {
      await this.turns.take(name, async () => {
        if (exit.expected || this.live.get(name)?.sandbox !== sandbox) return
        this.parts.onError(`the machine of sandbox ${name} ended: ${exit.message}`, null)
        await this.endMachine(name)
      })
    }).catch((error: unknown) => this.parts.onError(`sandbox ${name} could not be tidied up`, error))
  }

  private async forget(name: SandboxName): Promise<void> {
    await this.parts.store.remove(name)
    this.parts.gateways.forget(name)
  }

  /** Its process had ended before this daemon began. */
  private async forgetMachine(name: SandboxName, record: MachineRecord, reservation: Reservation | null): Promise<void> {
    await this.parts.store.update(name, { machine: null })
    await this.parts.host.reap(record)
    if (reservation !== null) await this.parts.release(reservation.id)
  }

  /** @throws DISK_FULL when a machine could not even start. */
  private async requireRoom(name: SandboxName): Promise<void> {
    const folder = this.parts.paths.home
    if ((await readFreeSpace(folder)).bytes >= START_DISK_BYTES) return
    throw await describeDiskFull({ what: `sandbox ${name}`, folder, neededBytes: START_DISK_BYTES, kept: 'nothing was begun' })
  }

  private tellDiskFull(thrown: unknown, what: string, kept: string): Promise<unknown> {
    return tellDiskFull(thrown, { what, folder: this.parts.paths.home, kept })
  }
}

function rewound(name: SandboxName, id: CheckpointId): string {
  return `sandbox ${name} was rewound to ${id} while this was running`
}

function createFixedEgress(name: SandboxName, before: string): Kosa8Error {
  const what = before === 'allow' ? `sandbox ${name} has a network card` : `sandbox ${name} has no network card`
  return new Kosa8Error('EGRESS_FIXED', `${what}, which is part of its machine: egress cannot change ${before === 'allow' ? 'from' : 'to'} allow`, {
    hint: before === 'allow' ? 'make another sandbox with --egress' : `everything over HTTP and HTTPS is allowed by: kosa8 egress ${name} '*'`,
  })
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
