/**
 * Overlays in the layers directory: names, making them, removing them.
 *
 * Owns: the rule that a frozen overlay (one that is part of a snapshot) has no write permission, which is
 * how an old record of a machine can never make us delete a layer that a checkpoint has since come to own.
 */
import { randomUUID } from 'node:crypto'
import { chmod, realpath, rm, stat } from 'node:fs/promises'
import path from 'node:path'
import { createOverlay, readLowerLayer, readOverlayHeader } from '../../util/qcow2.js'
import type { MachineHandle } from '../driver.js'

const MIB = 1024 * 1024

/** A name no layer had before. */
export function newLayerName(): string {
  return `${randomUUID()}.qcow2`
}

/** Makes overlay `name`, empty, on a raw disk; the guest sees it as large as the disk, or as `diskMib` where that is more. */
export async function createBaseOverlay(
  layersDirectory: string, name: string, rootDisk: string, diskMib: number | null,
): Promise<void> {
  const { size } = await stat(rootDisk)
  // The kernel resolves `..` from where the folder really is, not from the path we know it by.
  const backingName = path.relative(await realpath(layersDirectory), await realpath(rootDisk))
  await createOverlay(path.join(layersDirectory, name), { virtualBytes: Math.max(size, (diskMib ?? 0) * MIB), backingName, backingFormat: 'raw' })
}

/** Makes overlay `name`, empty, on layer `backingName`. */
export async function createLayerOverlay(layersDirectory: string, name: string, backingName: string): Promise<void> {
  const { virtualBytes } = await readOverlayHeader(path.join(layersDirectory, backingName))
  await createOverlay(path.join(layersDirectory, name), { virtualBytes, backingName, backingFormat: 'qcow2' })
}

/** Marks a layer as part of a snapshot: nobody writes to it any more, and {@link removeLayer} spares it. */
export async function freezeLayer(layersDirectory: string, name: string): Promise<void> {
  await chmod(path.join(layersDirectory, name), 0o444)
}

/** Freezes what the active layer lies on: an owner that died in a snapshot, after the switch, may not have come to it. */
export async function freezeLowerLayer({ layersDirectory, activeLayer }: Pick<MachineHandle, 'layersDirectory' | 'activeLayer'>): Promise<void> {
  const lower = await readLowerLayer(layersDirectory, activeLayer)
  if (lower !== null) await freezeLayer(layersDirectory, lower)
}

/** Removes a layer that only its machine used; a frozen one stays. An empty name is of a machine that never had one. */
export async function removeLayer(layersDirectory: string, name: string): Promise<void> {
  const file = path.join(layersDirectory, path.basename(name))
  const found = await stat(file).catch(() => null)
  if (found?.isFile() !== true || (found.mode & 0o222) === 0) return
  await rm(file, { force: true })
}
