/**
 * A little room that a home keeps for itself, so that a daemon can be started on a full disk and asked to remove something.
 *
 * Owns: the file that holds the room. It is given up where a daemon starts without any, and made again by one that has plenty.
 */
import { randomBytes } from 'node:crypto'
import { rm, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { DISK_MARGIN_BYTES, isDiskFull, readFreeSpace } from '../util/disk-space.js'

/** A start writes records, a log line and the append-only file of redis-server; logs and guests may take some of the room first. */
const SPARE_BYTES = DISK_MARGIN_BYTES

/** Gives the room up if there is no other. */
export async function giveUpSpareRoom(home: string): Promise<void> {
  if (await isDiskFull(home)) await rm(spareFile(home), { force: true })
}

/** Sets the room aside unless that is done, or would leave no other. */
export async function keepSpareRoom(home: string): Promise<void> {
  const file = spareFile(home)
  const sizeBytes = await stat(file).then(({ size }) => size, () => 0)
  const { bytes } = await readFreeSpace(home)
  if (sizeBytes === SPARE_BYTES || bytes < SPARE_BYTES + DISK_MARGIN_BYTES) return
  // Not zeros: a file system that compresses would keep no room for them.
  await writeFile(file, randomBytes(SPARE_BYTES), { mode: 0o600 }).catch(() => rm(file, { force: true }))
}

function spareFile(home: string): string {
  return path.join(home, 'spare')
}
