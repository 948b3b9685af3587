/**
 * The objects of a base as one stream: a pack, then its index, so that the guest need not compute it.
 *
 * Owns: packing on the host within bounded memory; stored deltas are taken over and none are searched.
 */
import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import path from 'node:path'
import { Readable } from 'node:stream'
import { runGit } from './host-git.js'
import type { PreparedBase } from './base.js'
import type { Repository } from './repository.js'
import { createScratch, removeScratch } from './scratch.js'

/** A pack on the host's disk, ready to be sent, as often as wanted. */
export interface PackedBase {
  /** Name of the pack as git spells it, `pack-<hash>`. */
  name: string
  packBytes: number
  indexBytes: number
  /** Pack and index one after the other. */
  open(onProgress?: (sentBytes: number, totalBytes: number) => void): Readable
  /** Removes it from the disk. */
  dispose(): Promise<void>
}

/** Packs what a guest needs for a base. The caller disposes of the pack. */
export async function packBase(
  repository: Repository, prepared: PreparedBase, options: { signal?: AbortSignal } = {},
): Promise<PackedBase> {
  const scratch = await createScratch(repository)
  try {
    const { depth, shallow, tips } = prepared.history
    const lines = [...(depth === 'shallow' ? shallow.map((oid) => `--shallow ${oid}`) : []), ...tips]
    const prefix = path.join(scratch.folder, 'pack')
    const hash = (await runGit(scratch.place, [
      'pack-objects', '--revs', '-q', '--delta-base-offset', '--window=0', '--compression=1', prefix,
    ], { stdin: `${lines.join('\n')}\n`, signal: options.signal })).toString('latin1').trim()
    const files = [`${prefix}-${hash}.pack`, `${prefix}-${hash}.idx`] as const
    const [packBytes, indexBytes] = [(await stat(files[0])).size, (await stat(files[1])).size]
    return {
      name: `pack-${hash}`, packBytes, indexBytes,
      open: (onProgress) => Readable.from(readAll(files, packBytes + indexBytes, onProgress), { objectMode: false }),
      dispose: () => removeScratch(scratch),
    }
  } catch (error) {
    await removeScratch(scratch)
    throw error
  }
}

async function* readAll(
  files: readonly string[], totalBytes: number, onProgress?: (sentBytes: number, totalBytes: number) => void,
): AsyncGenerator<Buffer> {
  let sentBytes = 0
  for (const file of files) {
    for await (const chunk of createReadStream(file, { highWaterMark: 256 * 1024 })) {
      yield chunk as Buffer
      sentBytes += (chunk as Buffer).length
      onProgress?.(sentBytes, totalBytes)
    }
  }
}
