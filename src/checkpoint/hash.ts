/**
 * Hashes of a checkpoint's files.
 *
 * Owns: what is hashed. Plain files in full; a memory file over its list of extents and the data in them,
 * since the rest is holes: that costs what was written, not what the machine could hold.
 */
import { createHash, type Hash } from 'node:crypto'
import { open, readFile, stat } from 'node:fs/promises'
import { decodeExtents, extentsFileOf, PAGE_BYTES } from '../util/extents.js'

const CHUNK_BYTES = 1024 * 1024

/** SHA-256 of a whole file, hexadecimal. */
export async function hashFile(file: string): Promise<string> {
  const hash = createHash('sha256')
  const sizeBytes = (await stat(file)).size
  await hashRanges(hash, file, [{ start: 0, length: sizeBytes }])
  return hash.digest('hex')
}

/** SHA-256 of a memory file: its extents, then the data in them. @throws RangeError when the list is damaged. */
export async function hashMemory(file: string): Promise<string> {
  const list = await readFile(extentsFileOf(file))
  const extents = decodeExtents(list, (await stat(file)).size / PAGE_BYTES)
  const hash = createHash('sha256').update(list)
  await hashRanges(hash, file, extents.map(({ firstPage, pageCount }) => ({
    start: firstPage * PAGE_BYTES, length: pageCount * PAGE_BYTES,
  })))
  return hash.digest('hex')
}

async function hashRanges(hash: Hash, file: string, ranges: { start: number; length: number }[]): Promise<void> {
  const chunk = Buffer.allocUnsafe(CHUNK_BYTES)
  const handle = await open(file, 'r')
  try {
    for (const { start, length } of ranges) {
      for (let done = 0; done < length;) {
        const { bytesRead } = await handle.read(chunk, 0, Math.min(CHUNK_BYTES, length - done), start + done)
        if (bytesRead === 0) throw new RangeError('the file is cut off')
        hash.update(chunk.subarray(0, bytesRead))
        done += bytesRead
      }
    }
  } finally {
    await handle.close()
  }
}
