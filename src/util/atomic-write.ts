/**
 * Files that are either there in full or not there at all.
 *
 * Owns: write-to-temporary, flush, rename. Callers: manifests, records, reports.
 */
import { randomUUID } from 'node:crypto'
import { link, mkdir, open, rename, rm } from 'node:fs/promises'
import path from 'node:path'

/** Replaces `file` with `content`; readers see the old or the new text, never a part. */
export async function writeFileAtomic(file: string, content: string | Uint8Array, mode = 0o600): Promise<void> {
  const temporary = await writeTemporary(file, content, mode)
  try {
    await rename(temporary, file)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
  await syncDirectory(path.dirname(file))
}

/**
 * Writes `file` only if it does not exist yet, in full or not at all.
 * @returns true when this call wrote it, false when it was there before.
 */
export async function writeFileOnce(file: string, content: string | Uint8Array, mode = 0o600): Promise<boolean> {
  const temporary = await writeTemporary(file, content, mode)
  try {
    await link(temporary, file)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw error
  } finally {
    await rm(temporary, { force: true })
  }
  await syncDirectory(path.dirname(file))
  return true
}

async function writeTemporary(file: string, content: string | Uint8Array, mode: number): Promise<string> {
  await mkdir(path.dirname(file), { recursive: true })
  const temporary = path.join(path.dirname(file), `.${path.basename(file)}.${randomUUID()}.tmp`)
  try {
    const handle = await open(temporary, 'wx', mode)
    try {
      await handle.writeFile(content)
      await handle.sync()
    } finally {
      await handle.close()
    }
    return temporary
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
}

async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}
