/**
 * Files that hold guest memory: sparse, as long as the machine's memory, with a list of their extents.
 *
 * Owns: making an empty one, copying one without filling its holes. Uses the file system's own
 * copy-on-write where it has that, and needs it nowhere.
 */
import { constants } from 'node:fs'
import { copyFile, open, readFile, writeFile, type FileHandle } from 'node:fs/promises'
import { decodeExtents, encodeExtents, extentsFileOf, mergeExtents, PAGE_BYTES, type Extent } from '../../util/extents.js'

/** Bytes copied with one read and one write. */
const COPY_BYTES = 4 * 1024 * 1024
/** Extents closer than this are listed as one. */
const LIST_GAP_PAGES = 16

/** Makes `file`, all holes, with an empty list of extents. */
export async function createMemoryFile(file: string, sizeBytes: number): Promise<void> {
  await withFile(file, (handle) => handle.truncate(sizeBytes))
  await writeExtents(file, [])
}

/** Runs `work` on a new file and closes it. */
async function withFile(file: string, work: (handle: FileHandle) => Promise<void>): Promise<void> {
  const handle = await open(file, 'wx', 0o600)
  try {
    await work(handle)
  } finally {
    await handle.close()
  }
}

/**
 * Lets `target` (which must not exist) share the blocks of memory file `source`; its list is not copied.
 * @returns false where the file system cannot do that; nothing is made then.
 */
export async function shareMemoryFile(source: string, target: string): Promise<boolean> {
  try {
    await copyFile(source, target, constants.COPYFILE_FICLONE_FORCE | constants.COPYFILE_EXCL)
    const handle = await open(target, 'r+')
    await handle.chmod(0o600).finally(() => handle.close())
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOSPC') throw error
    return false
  }
}

/** Copies memory file `source` to `target` (which must not exist), holes staying holes; its list is not copied. */
export async function copyMemoryFile(source: string, target: string, sizeBytes: number): Promise<void> {
  const extents = await readExtents(source, sizeBytes)
  const from = await open(source, 'r')
  try {
    await withFile(target, async (to) => {
      await to.truncate(sizeBytes)
      await copyExtents(from, to, extents)
    })
  } finally {
    await from.close()
  }
}

async function copyExtents(from: FileHandle, to: FileHandle, extents: readonly Extent[]): Promise<void> {
  const buffer = Buffer.alloc(COPY_BYTES)
  for (const { firstPage, pageCount } of extents) {
    const end = (firstPage + pageCount) * PAGE_BYTES
    for (let position = firstPage * PAGE_BYTES; position < end;) {
      const { bytesRead } = await from.read(buffer, 0, Math.min(COPY_BYTES, end - position), position)
      if (bytesRead === 0) throw new RangeError('the memory file is shorter than its extents')
      await to.write(buffer, 0, bytesRead, position)
      position += bytesRead
    }
  }
}

/**
 * The extents of a memory file.
 * @throws RangeError when the list is damaged.
 */
export async function readExtents(memoryFile: string, sizeBytes: number): Promise<Extent[]> {
  return decodeExtents(await readFile(extentsFileOf(memoryFile)), sizeBytes / PAGE_BYTES)
}

/** Writes the list of extents of a memory file: the union of those given. */
export async function writeExtents(memoryFile: string, extents: readonly Extent[]): Promise<void> {
  await writeFile(extentsFileOf(memoryFile), encodeExtents(mergeExtents(extents, LIST_GAP_PAGES)), { mode: 0o600 })
}
