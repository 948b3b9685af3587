/**
 * The checkpoints of named sandboxes: taking, finding, lending and removing them.
 *
 * Owns: the number of the next checkpoint, and when layers are swept. Does not own: what a checkpoint is
 * (`checkpoint`), going back to one (`sandbox-restore.ts`).
 */
import { snapshotOf, type CheckpointManifest } from '../checkpoint/manifest.js'
import { Kosa8Error, toKosa8Error } from '../errors/kosa8-error.js'
import { imageOf } from '../image/store.js'
import type { CheckpointId, SandboxName } from '../model/ids.js'
import type { Sandbox } from '../sandbox/sandbox.js'
import { tellDiskFull } from '../util/disk-space.js'
import type { SandboxMachines } from './sandbox-machines.js'
import type { SandboxParts, SandboxRepository } from './sandbox-parts.js'

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

/** Checkpoints by the name of their sandbox. */
export class SandboxCheckpoints {
  constructor(private readonly parts: SandboxParts, private readonly machines: SandboxMachines) {}

  /** Takes a checkpoint of a live sandbox, which goes on running. @throws DISK_FULL; nothing of it is left then. */
  async take(name: SandboxName, wanted: WantedCheckpoint): Promise<TakenCheckpoint> {
    return this.machines.inTurn(name, () => this.takeNow(name, wanted))
  }

  private async takeNow(name: SandboxName, wanted: WantedCheckpoint): Promise<TakenCheckpoint> {
    const { catalog, clock, paths, store } = this.parts
    const sandbox = await this.machines.of(name)
    const record = await store.read(name)
    const id = wanted.id ?? `${name}-ckpt-${record.nextCheckpoint}` as CheckpointId
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
      throw await tellDiskFull(error, {
        what: `checkpoint ${id}`, folder: paths.home, kept: `${name} goes on, and its other checkpoints are as they were`,
      })
    }
  }

  /** The journal of a machine is of use when everybody else has forgotten it: that it could not be written ends nothing. */
  private async note(sandbox: Sandbox): Promise<void> {
    await this.parts.host.note(sandbox).catch((error: unknown) => {
      this.parts.onError(`the journal of ${sandbox.hostname}'s machine could not be written`, error)
    })
  }

  /** The oldest first. */
  async list(name: SandboxName): Promise<CheckpointManifest[]> {
    return this.parts.catalog.list(name)
  }

  /** By id, or by label without regard to case; the newest of several. @throws CHECKPOINT_UNKNOWN, CHECKPOINT_CORRUPT */
  async find(name: SandboxName, selector: string, options: { verify?: boolean } = {}): Promise<CheckpointManifest> {
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
  async remove(name: SandboxName, id: CheckpointId): Promise<boolean> {
    const wasThere = await this.machines.inTurn(name, () => this.parts.catalog.remove(name, id))
    await this.collectGarbage()
    return wasThere
  }

  /** Lends a clone of a checkpoint for a while. */
  async withClone<T>(name: SandboxName, id: CheckpointId, signal: AbortSignal, work: (clone: Sandbox) => Promise<T>): Promise<T> {
    const { catalog, host, release, reserve } = this.parts
    const manifest = await catalog.load(name, id)
    const start = (): Promise<Sandbox> => host.clone({
      snapshot: snapshotOf(manifest, catalog), hostname: name, gateway: null, purpose: { kind: 'sandbox', name },
    })
    const reservation = await reserve(`${name} (reading it)`, manifest.shape.memoryMib, { signal, onWait: () => undefined })
    try {
      const clone = await start().catch((error: unknown) => {
        if (signal.aborted || !isGuestSilent(error)) throw error
        this.parts.onError(`a clone of checkpoint ${id} did not begin; another one is started`, error)
        return start()
      })
      try {
        return await work(clone)
      } finally {
        await host.destroy(clone)
      }
    } finally {
      await release(reservation.id)
    }
  }

  /** Removes layers and leftovers that nothing refers to; nothing while it is not known what every machine writes to. */
  async collectGarbage(options: { quietAt?: number | undefined } = {}): Promise<void> {
    const inUse = await this.machines.handles()
    if (inUse !== null) await this.parts.catalog.collectGarbage(inUse, options)
  }
}

/** A guest that never began has done nothing: a second machine can stand in for it, as in a trial. */
function isGuestSilent(error: unknown): boolean {
  return ['GUEST_UNREACHABLE', 'IDENTITY_NOT_REPAIRED'].includes(toKosa8Error(error).code)
}

/** The number for the next checkpoint, once `id` is in use: a number is never used twice. */
function numberAfter(name: SandboxName, id: CheckpointId, next: number): number {
  const prefix = `${name}-ckpt-`
  const number = id.startsWith(prefix) ? Number(id.slice(prefix.length)) : 0
  return Number.isSafeInteger(number) ? Math.max(next, number + 1) : next
}
