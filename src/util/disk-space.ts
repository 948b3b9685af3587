/**
 * Room on disks, and the one error for a disk that is full.
 *
 * Owns: telling whether a failure is one for lack of room, and saying which disk, what is needed and what is free.
 * Room is bytes and also file entries (inodes): a disk can run out of either.
 */
import { statfs } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { Kosa8Error, toKosa8Error } from '../errors/kosa8-error.js'

/** What a disk must have left beside what is measured: manifests, records and logs are a few KiB each. */
export const DISK_MARGIN_BYTES = 1024 * 1024

/** How often what waits for room looks for it, milliseconds. */
const LOOK_AGAIN_MS = 1_000

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

/** True where not even the margin is left. */
export async function isDiskFull(place: string): Promise<boolean> {
  const { bytes, files } = await readFreeSpace(place)
  return bytes < DISK_MARGIN_BYTES || files === 0
}

/** True for what a program says when it finds a disk full, in the words of the C library. */
export function saysDiskFull(words: string): boolean {
  return /no space left on device|disk quota exceeded/i.test(words)
}

/** What a failure for lack of room is told with. */
export interface DiskNeed {
  /** What could not be done, e.g. "checkpoint web-ckpt-3"; begins the message. */
  what: string
  /** A folder on that disk. */
  folder: string
  neededBytes: number
  /** What is needed in all is not known, but it is no less than this. */
  isLeast?: boolean
  /** One clause: what is still there, e.g. "web goes on as it was". */
  kept: string
}

/** @throws DISK_FULL when there is less than that */
export async function requireFreeSpace(need: DiskNeed): Promise<void> {
  if ((await readFreeSpace(need.folder)).bytes < need.neededBytes) throw await describeDiskFull(need)
}

/** The error for a disk that has not enough room. */
export async function describeDiskFull(need: DiskNeed, cause?: unknown): Promise<Kosa8Error> {
  const free = await readFreeSpace(need.folder)
  const left = free.files === 0 ? 'no further file can be made there (no inodes left)' : `${toMib(free.bytes)} MiB are free`
  return new Kosa8Error('DISK_FULL',
    `${need.what} needs ${need.isLeast === true ? 'at least ' : ''}${toMib(need.neededBytes, Math.ceil)} MiB on the disk of ${need.folder}, where ${left}; nothing was lost: ${need.kept}`, {
      hint: 'make room there (in the home: kosa8 checkpoint rm, kosa8 rm, kosa8 runs rm), then run the same command again',
      details: { folder: need.folder, neededBytes: need.neededBytes, isLeast: need.isLeast === true, freeBytes: free.bytes }, cause,
    })
}

/** What was thrown; if it was for lack of room, the error that says so in the words of `need`. */
export async function tellDiskFull(thrown: unknown, need: Omit<DiskNeed, 'neededBytes'>): Promise<unknown> {
  const error = toKosa8Error(thrown)
  if (error.code !== 'DISK_FULL') return thrown
  // Whoever found out knows best where: a folder of ours may lie on a disk of its own.
  const { neededBytes, isLeast, folder } = error.details
  const isKnown = typeof neededBytes === 'number'
  return describeDiskFull({
    ...need,
    neededBytes: isKnown ? neededBytes : DISK_MARGIN_BYTES,
    isLeast: !isKnown || isLeast === true,
    folder: typeof folder === 'string' ? folder : need.folder,
  }, thrown)
}

/**
 * Does what must not be left undone, such as noting the end of something: while there is no room for it, again and again.
 * @param onWait told once, with the failure
 * @throws whatever else it fails with, and the reason of `signal`
 */
export async function onceThereIsRoom<T>(work: () => Promise<T>, signal: AbortSignal, onWait: (error: unknown) => void): Promise<T> {
  for (let isFirst = true; ; isFirst = false) {
    signal.throwIfAborted()
    try {
      return await work()
    } catch (error) {
      if (toKosa8Error(error).code !== 'DISK_FULL') throw error
      if (isFirst) onWait(error)
    }
    // A signal that fires ends the pause, and then the next round.
    await delay(LOOK_AGAIN_MS, undefined, { signal }).catch(() => undefined)
  }
}

function toMib(bytes: number, round = Math.floor): number {
  return Math.max(0, round(bytes / 1024 ** 2))
}
