/**
 * Files that are either there in full or not there at all.
 *
 * Owns: write-to-temporary, flush, rename, and clearing away what killed writers left. Callers: manifests,
 * records, reports.
 */
import { randomUUID } from 'node:crypto'
import { link, open, readdir, rename, rm } from 'node:fs/promises'
import path from 'node:path'
import { makeFolder } from './make-folder.js'
import { isProcessAlive, ownProcessIdentity } from './process-identity.js'

/** Names of temporary files: what they will be, and which process writes them. */
const TEMPORARY_NAME = /^\..*\.(\d+)-(\d+)\.[0-9a-f-]{36}\.tmp$/

/** Replaces `file` with `content`; readers see the old or the new text, never a part. */
export async function writeFileAtomic(file: string, content: string | Uint8Array, mode = 0o600): Promise<void> {
  const temporary = await writeTemporary(file, content, mode)
  try {
    await rename(temporary, file)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
  await syncToDisk(path.dirname(file))
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
  await syncToDisk(path.dirname(file))
  return true
}

/** Waits until a file's content, or a folder's entries, would survive the loss of power. */
export async function syncToDisk(file: string): Promise<void> {
  const handle = await open(file, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/** A name beside `file` that says which process is at work on it, so that it is known once nobody is. */
export function temporaryNameFor(file: string): string {
  const { pid, startTicks } = ownProcessIdentity()
  return path.join(path.dirname(file), `.${path.basename(file)}.${pid}-${startTicks}.${randomUUID()}.tmp`)
}

/** Removes the temporary files of a folder whose writers have died. Nothing happens when there is no such folder. */
export async function removeAbandonedTemporaries(folder: string): Promise<void> {
  const names = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return []
    throw error
  })
  for (const name of names) {
    const [, pid, startTicks] = TEMPORARY_NAME.exec(name) ?? []
    if (pid === undefined || isProcessAlive({ pid: Number(pid), startTicks: Number(startTicks) })) continue
    await rm(path.join(folder, name), { force: true })
  }
}

async function writeTemporary(file: string, content: string | Uint8Array, mode: number): Promise<string> {
  await makeFolder(path.dirname(file))
  const temporary = temporaryNameFor(file)
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
