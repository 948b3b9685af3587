/**
 * The checkpoints of one host on disk: committing, finding, checking and removing them.
 *
 *   prepare → (driver writes memory, device state, freezes the overlay) → commit: manifest by rename
 *
 * Owns: what makes a checkpoint exist and what may be deleted. Does not own when one is taken, nor labels'
 * meaning to a user. Callers: orchestrator, daemon, workers.
 */
import { mkdir, readdir, rename, rm, rmdir, stat } from 'node:fs/promises'
import path from 'node:path'
import { Kosa8Error, toKosa8Error } from '../errors/kosa8-error.js'
import type { MachineHandle, MachineSnapshot } from '../hypervisor/driver.js'
import type { CheckpointId, SandboxName } from '../model/ids.js'
import { writeFileAtomic } from '../util/atomic-write.js'
import { hashFile, hashMemory } from './hash.js'
import { collectLayers } from './layers.js'
import {
  CHECKPOINT_FORMAT, corrupt, DEVICE_NAME, EXTENTS_NAME, MANIFEST_NAME, MEMORY_NAME, readManifest,
  type CheckpointFile, type CheckpointManifest,
} from './manifest.js'

/** Folders a catalog works in; both on one file system. */
export interface CatalogFolders {
  /** `<sandbox>/<checkpoint>/…` */
  checkpoints: string
  layers: string
}

/** What a checkpoint is committed with. */
export type NewCheckpoint =
  Pick<CheckpointManifest, 'id' | 'sandbox' | 'label' | 'createdAt' | 'image' | 'repository' | 'pauseMs' | 'privateBytes'>
  & { snapshot: MachineSnapshot }

/** Checkpoints by sandbox and id. Unknown ones: CHECKPOINT_UNKNOWN. */
export class CheckpointCatalog {
  /** Layers of checkpoints this process removed, until they are collected. */
  private readonly released = new Set<string>()

  constructor(private readonly folders: CatalogFolders) {}

  /** Folder of one checkpoint, there or not. */
  directoryOf(sandbox: SandboxName, id: CheckpointId): string {
    return path.join(this.folders.checkpoints, sandbox, id)
  }

  /**
   * Makes the empty folder for a checkpoint to be taken.
   * @throws CHECKPOINT_FAILED when there is a checkpoint of that id.
   */
  async prepare(sandbox: SandboxName, id: CheckpointId): Promise<string> {
    const directory = this.directoryOf(sandbox, id)
    if (await readManifest(directory) !== null) {
      throw new Kosa8Error('CHECKPOINT_FAILED', `sandbox ${sandbox} has a checkpoint ${id} already`, { hint: 'choose another id' })
    }
    await rm(directory, { recursive: true, force: true })
    await mkdir(directory, { recursive: true, mode: 0o700 })
    return directory
  }

  /** Makes a prepared checkpoint exist: hashes its files, then writes the manifest. */
  async commit(checkpoint: NewCheckpoint): Promise<CheckpointManifest> {
    const { snapshot, ...rest } = checkpoint
    const manifest: CheckpointManifest = {
      format: CHECKPOINT_FORMAT, ...rest, boot: snapshot.image, shape: snapshot.shape, fingerprint: snapshot.fingerprint,
      diskLayer: snapshot.diskLayer, files: await this.describeFiles(checkpoint),
    }
    const file = path.join(this.directoryOf(checkpoint.sandbox, checkpoint.id), MANIFEST_NAME)
    await writeFileAtomic(file, `${JSON.stringify(manifest, null, 2)}\n`, 0o400).catch((error: unknown) => {
      throw toKosa8Error(error)
    })
    return manifest
  }

  /** Removes what a failed attempt left. */
  async discard(sandbox: SandboxName, id: CheckpointId): Promise<void> {
    await rm(this.directoryOf(sandbox, id), { recursive: true, force: true })
  }

  /** Reads a checkpoint and checks that its files have their sizes. @throws CHECKPOINT_UNKNOWN, CHECKPOINT_CORRUPT */
  async load(sandbox: SandboxName, id: CheckpointId): Promise<CheckpointManifest> {
    const manifest = await readManifest(this.directoryOf(sandbox, id))
    if (manifest === null) {
      throw new Kosa8Error('CHECKPOINT_UNKNOWN', `sandbox ${sandbox} has no checkpoint ${id}`, { hint: `list them with: kosa8 checkpoint ls ${sandbox}` })
    }
    for (const file of manifest.files) {
      const place = this.placeOf(manifest, file)
      const found = await stat(place).catch(() => null)
      if (found === null) throw corrupt(place, 'it is missing')
      if (found.size !== file.sizeBytes) throw corrupt(place, `it has ${found.size} bytes instead of ${file.sizeBytes}`)
    }
    return manifest
  }

  /** Reads every byte of a checkpoint. @throws CHECKPOINT_CORRUPT naming the file whose content has changed. */
  async verify(sandbox: SandboxName, id: CheckpointId): Promise<void> {
    const manifest = await this.load(sandbox, id)
    for (const file of manifest.files) {
      const place = this.placeOf(manifest, file)
      const sha256 = await this.hashOf(place, file.name).catch((error: unknown) => {
        throw corrupt(place, toKosa8Error(error).message, error)
      })
      if (sha256 !== file.sha256) throw corrupt(place, 'its content is not what was saved')
    }
  }

  /** Committed checkpoints of a sandbox, oldest first. A damaged one does not hide the others. */
  async list(sandbox: SandboxName): Promise<CheckpointManifest[]> {
    const found = await Promise.all((await namesIn(path.join(this.folders.checkpoints, sandbox)))
      .map((id) => readManifest(this.directoryOf(sandbox, id as CheckpointId)).catch(() => null)))
    return found.filter((manifest) => manifest !== null)
      .sort((a, b) => a.createdAt.localeCompare(b.createdAt) || a.id.localeCompare(b.id, 'en', { numeric: true }))
  }

  /** Committed checkpoints of all sandboxes. */
  async listAll(): Promise<CheckpointManifest[]> {
    const sandboxes = await namesIn(this.folders.checkpoints)
    return (await Promise.all(sandboxes.map((name) => this.list(name as SandboxName)))).flat()
  }

  /** Removes a checkpoint: it is gone with its manifest, then its files follow. Its layer waits for {@link collectGarbage}. */
  async remove(sandbox: SandboxName, id: CheckpointId): Promise<void> {
    const directory = this.directoryOf(sandbox, id)
    this.release(await readManifest(directory).catch(() => null))
    await rm(path.join(directory, MANIFEST_NAME), { force: true })
    await rm(directory, { recursive: true, force: true })
  }

  /** Removes every checkpoint of a sandbox. */
  async removeAll(sandbox: SandboxName): Promise<void> {
    const directory = path.join(this.folders.checkpoints, sandbox)
    for (const manifest of await this.list(sandbox)) this.release(manifest)
    const doomed = path.join(this.folders.checkpoints, `.removed-${sandbox}-${process.pid}-${Date.now()}`)
    await rename(directory, doomed).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error
    })
    await rm(doomed, { recursive: true, force: true })
  }

  /**
   * Removes layers no checkpoint and no machine needs.
   * @param machines every machine of this host, those being started included
   * @param isQuiet nobody is starting a machine or taking a checkpoint now, so that young layers need not be spared
   */
  async collectGarbage(machines: readonly MachineHandle[], { isQuiet = false } = {}): Promise<string[]> {
    const needed = new Set<string>()
    for (const sandbox of await namesIn(this.folders.checkpoints)) {
      for (const id of await namesIn(path.join(this.folders.checkpoints, sandbox))) {
        // A manifest that cannot be read still stands for a checkpoint somebody may want to mend: keep everything.
        const manifest = await readManifest(this.directoryOf(sandbox as SandboxName, id as CheckpointId)).catch(() => 'damaged' as const)
        if (manifest === 'damaged') return []
        if (manifest !== null) needed.add(manifest.diskLayer)
      }
    }
    for (const { activeLayer, parent } of machines) {
      needed.add(activeLayer)
      if (parent !== null) needed.add(parent.diskLayer)
    }
    const removed = await collectLayers(this.folders.layers, needed, { isQuiet, released: this.released })
    for (const name of removed) this.released.delete(name)
    return removed
  }

  /** Removes what a killed process left of checkpoints it was taking or removing. Call it while nobody takes one. */
  async removeUnfinished(): Promise<void> {
    for (const sandbox of await readNames(this.folders.checkpoints)) {
      const folder = path.join(this.folders.checkpoints, sandbox)
      if (sandbox.startsWith('.')) await rm(folder, { recursive: true, force: true })
      for (const id of await namesIn(folder)) {
        const hasManifest = await stat(path.join(folder, id, MANIFEST_NAME)).then(() => true, () => false)
        if (!hasManifest) await rm(path.join(folder, id), { recursive: true, force: true })
      }
      await rmdir(folder).catch(() => undefined) // one with checkpoints stays
    }
  }

  private release(manifest: CheckpointManifest | null): void {
    if (manifest !== null) this.released.add(manifest.diskLayer)
  }

  private async describeFiles({ snapshot, sandbox, id }: NewCheckpoint): Promise<CheckpointFile[]> {
    const directory = this.directoryOf(sandbox, id)
    const places: [string, string][] = [
      ...[MEMORY_NAME, EXTENTS_NAME, DEVICE_NAME].map((name): [string, string] => [name, path.join(directory, name)]),
      [snapshot.diskLayer, path.join(this.folders.layers, snapshot.diskLayer)],
    ]
    return Promise.all(places.map(async ([name, place]) => ({
      name, sizeBytes: (await stat(place)).size, sha256: await this.hashOf(place, name),
    })))
  }

  private hashOf(place: string, name: string): Promise<string> {
    return name === MEMORY_NAME ? hashMemory(place) : hashFile(place)
  }

  private placeOf(manifest: CheckpointManifest, file: CheckpointFile): string {
    return file.name === manifest.diskLayer
      ? path.join(this.folders.layers, file.name)
      : path.join(this.directoryOf(manifest.sandbox, manifest.id), file.name)
  }
}

/** Folder entries that are names of ours; leftovers being removed begin with a dot. */
async function namesIn(directory: string): Promise<string[]> {
  return (await readNames(directory)).filter((name) => !name.startsWith('.')).sort()
}

async function readNames(directory: string): Promise<string[]> {
  return readdir(directory).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return []
    throw error
  })
}
