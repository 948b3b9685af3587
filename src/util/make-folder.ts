/**
 * Making a folder with those above it.
 *
 * Owns: the truth about why it could not be made. Node's own recursive `mkdir` says "no such file" where the disk is full (as
 * of Node 20), and who reads that does not know to make room.
 */
import { mkdir, stat } from 'node:fs/promises'
import path from 'node:path'

/** Makes `folder`, and those above it that are missing, each with `mode`; nothing happens when it is there. */
export async function makeFolder(folder: string, mode = 0o777): Promise<void> {
  try {
    await mkdir(folder, mode)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') {
      await makeFolder(path.dirname(folder), mode)
      await makeFolder(folder, mode)
    } else if (code !== 'EEXIST' || !(await stat(folder)).isDirectory()) {
      throw error
    }
  }
}
