/**
 * The layers folder: every overlay of this host, by name.
 *
 * Owns: backing chains, and which layers are still needed. A layer is, if a checkpoint or a machine names it, or
 * if it lies in the backing chain of one that is. Very young ones that can be written to are spared: their machine may
 * be about to be noted. A frozen one has been noted long ago.
 */
import { readdir, rm, stat } from 'node:fs/promises'
import path from 'node:path'
import { readLowerLayer } from '../util/qcow2.js'

/** A layer younger than this is never removed, milliseconds. */
const GRACE_MS = 60_000
/** Longer chains than this are not ours. */
const CHAIN_MAX = 1_000

/** What the grace of young layers does not hold for. */
export interface LayerCollection {
  /** A moment at which nobody was starting a machine: what is older is not about to be noted. Wall clock, milliseconds. */
  quietAt?: number | undefined
  /** Wall clock, milliseconds. */
  now?: () => number
}

/**
 * Removes every layer that is not needed.
 * @param needed names of layers that are in use themselves
 * @returns the names of those removed.
 */
export async function collectLayers(
  folder: string, needed: ReadonlySet<string>, { quietAt = 0, now = Date.now }: LayerCollection = {},
): Promise<string[]> {
  const live = new Set<string>()
  for (const name of needed) await addChain(folder, name, live)
  const removed: string[] = []
  for (const name of await readdir(folder)) {
    const file = path.join(folder, name)
    if (live.has(name) || !name.endsWith('.qcow2')) continue
    const found = await stat(file).catch(() => null)
    if (found === null) continue
    const isFrozen = (found.mode & 0o222) === 0
    if (!isFrozen && found.ctimeMs >= quietAt && now() - found.ctimeMs < GRACE_MS) continue
    await rm(file, { force: true })
    removed.push(name)
  }
  return removed
}

/**
 * The layers below `first`, top down, as far as they lie in this folder; a path out of it is the base image's.
 * @throws RangeError, ENOENT for the layer that cannot be read; its path is the error's `path` or in its message.
 */
export async function lowerLayersOf(folder: string, first: string): Promise<string[]> {
  const lower: string[] = []
  for (let name = await readLowerLayer(folder, first); name !== null; name = await readLowerLayer(folder, name)) {
    if (lower.length === CHAIN_MAX) throw new RangeError(`${path.join(folder, first)} lies on more than ${CHAIN_MAX} layers`)
    lower.push(name)
  }
  return lower
}

/** A layer and everything below it, as far as it can be read. */
async function addChain(folder: string, first: string, live: Set<string>): Promise<void> {
  for (let name: string | null = first; name !== null && !live.has(name);) {
    live.add(name)
    name = await readLowerLayer(folder, name).catch(() => null)
  }
}
