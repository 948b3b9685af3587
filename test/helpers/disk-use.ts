/** What a home's checkpoints take on disk, and whether anything of it belongs to nothing. */
import { readdir, stat } from 'node:fs/promises'
import path from 'node:path'
import { readManifest } from '../../src/checkpoint/manifest.js'
import { lowerLayersOf } from '../../src/checkpoint/layers.js'
import type { MachineStore } from '../../src/store/machine-store.js'
import type { Paths } from '../../src/store/paths.js'

/** Measured now. */
export interface DiskUse {
  /** Blocks on disk of memory, device state and manifests, bytes; a file with two names counts once. */
  checkpointBytes: number
  layerBytes: number
  layers: number
  /** Layers below that of any checkpoint, at most. */
  depth: number
  /** Layers no checkpoint and no machine needs, and folders of checkpoints without a manifest. */
  orphans: string[]
}

/** Looks through a home. */
export async function measureDiskUse(paths: Paths, machines: MachineStore): Promise<DiskUse> {
  const use: DiskUse = { checkpointBytes: 0, layerBytes: 0, layers: 0, depth: 0, orphans: [] }
  const needed = new Set<string>()
  const need = async (layer: string): Promise<number> => {
    const lower = await lowerLayersOf(paths.layers, layer)
    for (const name of [layer, ...lower]) needed.add(name)
    return lower.length
  }
  for (const sandbox of await readdir(paths.checkpoints)) {
    for (const id of await readdir(path.join(paths.checkpoints, sandbox))) {
      const folder = path.join(paths.checkpoints, sandbox, id)
      const manifest = await readManifest(folder)
      if (manifest === null) use.orphans.push(folder)
      else use.depth = Math.max(use.depth, await need(manifest.diskLayer))
      for (const file of await readdir(folder)) use.checkpointBytes += (await stat(path.join(folder, file))).blocks * 512
    }
  }
  for (const { handle } of await machines.list()) if (handle !== null) await need(handle.activeLayer)
  for (const name of await readdir(paths.layers)) {
    use.layers += 1
    use.layerBytes += (await stat(path.join(paths.layers, name))).blocks * 512
    if (!needed.has(name)) use.orphans.push(name)
  }
  return use
}
