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
    await makeOne(folder, mode)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    await makeFolder(path.dirname(folder), mode)
    // Once more and not again and again: below /proc a folder cannot be made and yet lacks none above it.
    await makeOne(folder, mode)
  }
}

async function makeOne(folder: string, mode: number): Promise<void> {
  await mkdir(folder, mode).catch(async (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST' || !(await stat(folder)).isDirectory()) throw error
  })
}
