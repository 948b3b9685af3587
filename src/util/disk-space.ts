/**
 * Room on disks, and the one error for a disk that is full.
 *
 * Owns: telling whether a failure is one for lack of room, and saying which disk, what is needed and what is free.
 * Room is bytes and also file entries (inodes): a disk can run out of either.
 */
import { statfs } from 'node:fs/promises'
import path from 'node:path'
import { Kosa8Error, toKosa8Error } from '../errors/kosa8-error.js'

/** What a disk must have left beside what is measured: manifests, records and logs are a few KiB each. */
export const DISK_MARGIN_BYTES = 1024 * 1024

/** What a disk has left for this user. */
export interface FreeSpace {
  bytes: number
  /** Files and folders that can still be made. */
  files: number
}

/** Room on the disk of `place`, or of the nearest folder above it that is there. */
export async function readFreeSpace(place: string): Promise<FreeSpace> {
  try {
    const { blocks, bavail, bsize, files, ffree } = await statfs(place)
    // Some file systems tell no number: btrfs makes file entries as it needs them, others are no disk at all.
    return { bytes: blocks === 0 ? Infinity : bavail * bsize, files: files === 0 ? Infinity : ffree }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || path.dirname(place) === place) throw error
    return readFreeSpace(path.dirname(place))
  }
}

/** What a failure for lack of room is told with. */
export interface DiskNeed {
  /** What could not be done, e.g. "checkpoint web-ckpt-3"; begins the message. */
  what: string
  /** A folder on that disk. */
  folder: string
  neededBytes: number
  /** One clause: what is still there, e.g. "web goes on as it was". */
  kept: string
}

/** The error for a disk that has not enough room. */
export async function describeDiskFull(need: DiskNeed, cause?: unknown): Promise<Kosa8Error> {
  const free = await readFreeSpace(need.folder)
  const left = free.files === 0 ? 'no further file can be made there (no inodes left)' : `${toMib(free.bytes)} MiB are free`
  return new Kosa8Error('DISK_FULL',
    `${need.what} needs ${toMib(need.neededBytes, Math.ceil)} MiB on the disk of ${need.folder}, where ${left}; nothing was lost: ${need.kept}`, {
      hint: 'make room (kosa8 checkpoint rm, kosa8 rm, kosa8 runs rm), then run the same command again',
      details: { folder: need.folder, neededBytes: need.neededBytes, freeBytes: free.bytes }, cause,
    })
}

/** What was thrown; if it was for lack of room, the error that says so in the words of `need`. */
export async function tellDiskFull(thrown: unknown, need: Omit<DiskNeed, 'neededBytes'>): Promise<unknown> {
  const error = toKosa8Error(thrown)
  if (error.code !== 'DISK_FULL') return thrown
  // Whoever found out knows best where: a folder of ours may lie on a disk of its own.
  const { neededBytes, folder } = error.details
  return describeDiskFull({
    ...need,
    neededBytes: typeof neededBytes === 'number' ? neededBytes : DISK_MARGIN_BYTES,
    folder: typeof folder === 'string' ? folder : need.folder,
  }, thrown)
}

function toMib(bytes: number, round = Math.floor): number {
  return Math.max(0, round(bytes / 1024 ** 2))
}
