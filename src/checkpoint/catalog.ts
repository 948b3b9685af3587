/**
 * The checkpoints of one host on disk: committing, finding, checking and removing them.
 *
 *   prepare → (driver writes memory, device state, freezes the overlay) → commit: all of it on disk, then the manifest
 *
 * Owns: what makes a checkpoint exist and what may be deleted. The order holds against a loss of power too: what a
 * manifest names is on disk before it. Does not own when one is taken, nor labels' meaning to a user. Callers:
 * orchestrator, daemon, workers.
 */
import { readdir, rename, rm, rmdir, stat } from 'node:fs/promises'
import path from 'node:path'
import { Kosa8Error, toKosa8Error } from '../errors/kosa8-error.js'
import type { MachineHandle, MachineSnapshot } from '../hypervisor/driver.js'
import type { CheckpointId, SandboxName } from '../model/ids.js'
import { syncToDisk, writeFileAtomic } from '../util/atomic-write.js'
import { makeFolder } from '../util/make-folder.js'
import { hashFile, hashMemory } from './hash.js'
import { collectLayers, lowerLayersOf } from './layers.js'
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
  Pick<CheckpointManifest, 'id' | 'sandbox' | 'label' | 'createdAt' | 'image' | 'repository' | 'parent' | 'pauseMs' | 'privateBytes'>
  & { snapshot: MachineSnapshot }

/** Checkpoints by sandbox and id. Unknown ones: CHECKPOINT_UNKNOWN. */
export class CheckpointCatalog {
  /** Of layers this process has looked at: once frozen they never change, so each is hashed once. */
  private readonly knownLayers = new Map<string, CheckpointFile>()

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
    await makeFolder(directory, 0o700)
    return directory
  }

  /** Makes a prepared checkpoint exist: hashes its files, brings all of them to disk, then writes the manifest. */
  async commit(checkpoint: NewCheckpoint): Promise<CheckpointManifest> {
    const { snapshot, ...rest } = checkpoint
    const directory = this.directoryOf(checkpoint.sandbox, checkpoint.id)
    const own = [MEMORY_NAME, EXTENTS_NAME, DEVICE_NAME, snapshot.diskLayer]
    const lower = await lowerLayersOf(this.folders.layers, snapshot.diskLayer)
    await this.learnLayers(checkpoint.sandbox)
    const [files, lowerLayers] = await Promise.all([own, lower].map((names) =>
      Promise.all(names.map((name) => this.describeFile(directory, name))))) as [CheckpointFile[], CheckpointFile[]]
    const manifest: CheckpointManifest = {
      format: CHECKPOINT_FORMAT, ...rest, boot: snapshot.image, shape: snapshot.shape, fingerprint: snapshot.fingerprint,
      diskLayer: snapshot.diskLayer, files, lowerLayers,
    }
    for (const name of [...own, ...lower]) await syncToDisk(this.placeOf(directory, name))
    for (const folder of [this.folders.layers, directory, path.dirname(directory), this.folders.checkpoints]) await syncToDisk(folder)
    await writeFileAtomic(path.join(directory, MANIFEST_NAME), `${JSON.stringify(manifest, null, 2)}\n`, 0o400)
    return manifest
  }

  /** Removes what a failed attempt left, committed or not. */
  async discard(sandbox: SandboxName, id: CheckpointId): Promise<void> {
    await this.removeDirectory(this.directoryOf(sandbox, id))
  }

  /**
   * Reads a checkpoint and checks that all its files are there and have their sizes, layers it shares included.
   * @throws CHECKPOINT_UNKNOWN, CHECKPOINT_CORRUPT
   */
  async load(sandbox: SandboxName, id: CheckpointId): Promise<CheckpointManifest> {
    const manifest = await readManifest(this.directoryOf(sandbox, id))
    if (manifest === null) {
      throw new Kosa8Error('CHECKPOINT_UNKNOWN', `sandbox ${sandbox} has no checkpoint ${id}`, { hint: `list them with: kosa8 checkpoint ls ${sandbox}` })
    }
    await Promise.all(this.filesOf(manifest).map(async ({ place, sizeBytes }) => {
      const found = await stat(place).catch(() => null)
      if (found === null) throw corrupt(place, 'it is missing')
      if (found.size !== sizeBytes) throw corrupt(place, `it has ${found.size} bytes instead of ${sizeBytes}`)
    }))
    await lowerLayersOf(this.folders.layers, manifest.diskLayer).catch((error: NodeJS.ErrnoException) => {
      throw corrupt(error.path ?? path.join(this.folders.layers, manifest.diskLayer), `a layer of its disk cannot be read (${error.message})`, error)
    })
    return manifest
  }

  /** Reads every byte of a checkpoint. @throws CHECKPOINT_CORRUPT naming the file whose content has changed. */
  async verify(sandbox: SandboxName, id: CheckpointId): Promise<void> {
    const manifest = await this.load(sandbox, id)
    for (const { place, name, sha256 } of this.filesOf(manifest)) {
      const found = await hashOf(place, name).catch((error: unknown) => {
        throw corrupt(place, toKosa8Error(error).message, error)
      })
      if (found !== sha256) throw corrupt(place, 'its content is not what was saved')
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

  /**
   * Removes a checkpoint, whole or damaged: it is gone with its manifest, then its files follow. Its layer waits for
   * {@link collectGarbage}.
   * @returns false when there is no such checkpoint.
   */
  async remove(sandbox: SandboxName, id: CheckpointId): Promise<boolean> {
    const directory = this.directoryOf(sandbox, id)
    if (await readManifest(directory).catch(() => 'damaged') === null) return false
    await this.removeDirectory(directory)
    return true
  }

  private async removeDirectory(directory: string): Promise<void> {
    await rm(path.join(directory, MANIFEST_NAME), { force: true })
    // A manifest that comes back with the power must not find its files gone.
    await syncToDisk(directory).catch(() => undefined)
    await rm(directory, { recursive: true, force: true })
  }

  /** Removes every checkpoint of a sandbox. */
  async removeAll(sandbox: SandboxName): Promise<void> {
    const directory = path.join(this.folders.checkpoints, sandbox)
    const doomed = path.join(this.folders.checkpoints, `.removed-${sandbox}-${process.pid}-${Date.now()}`)
    await rename(directory, doomed).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error
    })
    await rm(doomed, { recursive: true, force: true })
  }

  /**
   * Removes layers no checkpoint and no machine needs.
   * @param machines every machine of this host, those being started included
   * @param quietAt a moment at which nobody was starting a machine or taking a checkpoint: layers of before need not be spared; milliseconds
   */
  async collectGarbage(machines: readonly MachineHandle[], { quietAt }: { quietAt?: number | undefined } = {}): Promise<string[]> {
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
      // Until the active layer is there nothing but the record says what it will lie on; later it may lie on less.
      const isMade = await stat(path.join(this.folders.layers, activeLayer)).then(() => true, () => false)
      if (parent !== null && !isMade) needed.add(parent.diskLayer)
    }
    const removed = await collectLayers(this.folders.layers, needed, { quietAt })
    for (const name of removed) this.knownLayers.delete(name)
    return removed
  }

  /**
   * Removes what a killed process left of checkpoints it was taking or removing.
   * @param isQuiet true for a sandbox of which nobody takes a checkpoint now
   */
  async removeUnfinished(isQuiet: (sandbox: SandboxName) => boolean): Promise<void> {
    for (const sandbox of await readNames(this.folders.checkpoints)) {
      const folder = path.join(this.folders.checkpoints, sandbox)
      if (sandbox.startsWith('.')) await rm(folder, { recursive: true, force: true })
      if (!isQuiet(sandbox as SandboxName)) continue
      for (const id of await namesIn(folder)) {
        const hasManifest = await stat(path.join(folder, id, MANIFEST_NAME)).then(() => true, () => false)
        if (!hasManifest) await rm(path.join(folder, id), { recursive: true, force: true })
      }
      await rmdir(folder).catch(() => undefined) // one with checkpoints stays
    }
  }

  /** Layers other checkpoints of the sandbox have described need not be hashed again. */
  private async learnLayers(sandbox: SandboxName): Promise<void> {
    for (const { diskLayer, files, lowerLayers = [] } of await this.list(sandbox)) {
      for (const file of [...files, ...lowerLayers]) {
        if (file.name === diskLayer || lowerLayers.includes(file)) this.knownLayers.set(file.name, file)
      }
    }
  }

  private async describeFile(directory: string, name: string): Promise<CheckpointFile> {
    const place = this.placeOf(directory, name)
    const known = this.knownLayers.get(name)
    const sizeBytes = (await stat(place)).size
    if (known?.sizeBytes === sizeBytes) return known
    const described = { name, sizeBytes, sha256: await hashOf(place, name) }
    if (!isOwnFile(name)) this.knownLayers.set(name, described)
    return described
  }

  private filesOf(manifest: CheckpointManifest): (CheckpointFile & { place: string })[] {
    const directory = this.directoryOf(manifest.sandbox, manifest.id)
    return [...manifest.files, ...manifest.lowerLayers ?? []].map((file) => ({ ...file, place: this.placeOf(directory, file.name) }))
  }

  private placeOf(directory: string, name: string): string {
    return path.join(isOwnFile(name) ? directory : this.folders.layers, name)
  }
}

/** Lies beside the manifest, and is no layer. */
function isOwnFile(name: string): boolean {
  return name === MEMORY_NAME || name === EXTENTS_NAME || name === DEVICE_NAME
}

function hashOf(place: string, name: string): Promise<string> {
  return name === MEMORY_NAME ? hashMemory(place) : hashFile(place)
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
