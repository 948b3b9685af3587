/**
 * Putting a sandbox back to one of its checkpoints, under the same name.
 *
 * Owns: the order in which the present machine ends and the one from the checkpoint begins, so that whatever
 * fails, the sandbox or the checkpoint remains.
 */
import { stat } from 'node:fs/promises'
import path from 'node:path'
import { snapshotOf, type CheckpointManifest } from '../checkpoint/manifest.js'
import { toKosa8Error, type Kosa8Error } from '../errors/kosa8-error.js'
import type { Machine } from '../hypervisor/driver.js'
import type { CheckpointId, SandboxName } from '../model/ids.js'
import type { Reservation } from '../model/reservation.js'
import { CleanupStack } from '../util/cleanup.js'
import { describeDiskFull, DISK_MARGIN_BYTES, readFreeSpace, tellDiskFull } from '../util/disk-space.js'
import type { Present, SandboxMachines } from './sandbox-machines.js'
import type { SandboxParts } from './sandbox-parts.js'

/** Unit of a file's `blocks`. */
const BLOCK_BYTES = 512

/** What a restore ends with. */
export interface Restored {
  manifest: CheckpointManifest
  restoreMs: number
}

/** Restores sandboxes. */
export class SandboxRestore {
  constructor(private readonly parts: SandboxParts, private readonly machines: SandboxMachines) {}

  /**
   * What can be checked is checked before anything ends. Then, where there is memory for both, the machine is made
   * anew beside the present one, which stands still and goes on if that fails.
   * @throws CHECKPOINT_UNKNOWN, CHECKPOINT_CORRUPT, CHECKPOINT_INCOMPATIBLE, MEMORY_INSUFFICIENT, DISK_FULL
   */
  async restore(name: SandboxName, id: CheckpointId): Promise<Restored> {
    return this.machines.inTurn(name, () => this.restoreNow(name, id))
  }

  private async restoreNow(name: SandboxName, id: CheckpointId): Promise<Restored> {
    const startedAt = performance.now()
    const manifest = await this.parts.catalog.load(name, id)
    await this.parts.host.assertRestorable(snapshotOf(manifest, this.parts.catalog))
    const present = await this.machines.presentOf(name)
    if (!await this.replaceBeside(name, manifest, present)) await this.replaceAfter(name, manifest, present)
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
      const failure = toKosa8Error(error)
      const isForRoom = failure.code === 'MEMORY_INSUFFICIENT' || failure.code === 'DISK_FULL'
      const refusal = isForRoom ? await this.refuseToEnd(name, machine) : failure
      if (refusal === null) return false
      void stopped.then(() => machine.resume()).catch(() => undefined) // It has ended.
      throw refusal
    }
    await present.end(rewound(name, manifest.id))
    await this.parts.release(present.reservation.id)
    return true
  }

  /** What a machine has written to its disk is free once it has ended. @returns why it must not end: that would not be room enough. */
  private async refuseToEnd(name: SandboxName, { handle }: Machine): Promise<Kosa8Error | null> {
    const folder = handle.layersDirectory
    const { blocks } = await stat(path.join(folder, handle.activeLayer))
    if ((await readFreeSpace(folder)).bytes + blocks * BLOCK_BYTES >= DISK_MARGIN_BYTES) return null
    return describeDiskFull({ what: `rewinding ${name}`, folder: this.parts.paths.home, neededBytes: DISK_MARGIN_BYTES, kept: `${name} goes on as it was` })
  }

  private async replaceAfter(name: SandboxName, manifest: CheckpointManifest, present: Present): Promise<void> {
    try {
      const reservation = present.reservation ?? await this.parts.reserve(name, manifest.shape.memoryMib)
      await present.end(rewound(name, manifest.id))
      await this.startRestored(name, manifest, reservation).catch(async (error: unknown) => {
        await this.parts.store.update(name, { machine: null }).catch(() => undefined) // Found out by the next start, too.
        throw error
      })
    } catch (error) {
      throw await tellDiskFull(error, {
        what: `rewinding ${name}`, folder: this.parts.paths.home, kept: `its checkpoint ${manifest.id} is still there`,
      })
    }
  }

  /** Starts a sandbox's machine from a checkpoint; its memory is given back when that fails. */
  private async startRestored(name: SandboxName, manifest: CheckpointManifest, reservation: Reservation): Promise<void> {
    const { catalog, gateways, host, release, store } = this.parts
    const cleanup = new CleanupStack()
    cleanup.defer('release its memory', () => release(reservation.id))
    try {
      const { egress } = await store.read(name)
      const sandbox = await host.clone({
        snapshot: snapshotOf(manifest, catalog), hostname: name, gateway: gateways.of(name, egress), purpose: { kind: 'sandbox', name },
      })
      cleanup.defer('end its machine', () => host.destroy(sandbox))
      await this.machines.adopt(name, sandbox, reservation, { parent: { sandbox: manifest.sandbox, id: manifest.id } })
    } catch (error) {
      await cleanup.run()
      throw error
    }
  }
}

function rewound(name: SandboxName, id: CheckpointId): string {
  return `sandbox ${name} was rewound to ${id} while this was running`
}
