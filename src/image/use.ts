/**
 * Whether a running machine reads an image, of whatever home, and removing images that none does.
 *
 * Owns: asking QEMU's own lock on the root disk, which the kernel frees with its last process, however that ended.
 * Does not own: checkpoints that read through an image while no machine runs, which the caller knows.
 */
import { randomUUID } from 'node:crypto'
import { readdir, readlink, realpath, rename, rm, rmdir } from 'node:fs/promises'
import path from 'node:path'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { runProgram } from '../util/spawn.js'
import { withLock } from './lock.js'
import { IMAGE_FILES, imageFolder, type ImageManifest } from './store.js'

/** Opening a file takes a moment, milliseconds. */
const OPEN_MS_MAX = 10_000

/** True while a running machine of any home has the image's root disk open. */
export async function isImageRunning(imagesDirectory: string, { name, hash }: Pick<ImageManifest, 'name' | 'hash'>): Promise<boolean> {
  return isDiskLocked(path.join(imageFolder(imagesDirectory, name, hash), IMAGE_FILES.rootDisk))
}

async function isDiskLocked(disk: string): Promise<boolean> {
  const { code, stderr } = await runProgram('qemu-io', ['-f', 'raw', '-c', 'quit', disk], { timeoutMs: OPEN_MS_MAX })
  return code !== 0 && stderr.includes('lock')
}

/** True while a process that we may look at has the file open: QEMU locks its disk a moment after it opened it. */
async function isOpen(file: string): Promise<boolean> {
  const target = await realpath(file)
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    const descriptors = `/proc/${pid}/fd`
    const names = await readdir(descriptors).catch(() => []) // ended, or somebody else's
    const targets = await Promise.all(names.map((name) => readlink(path.join(descriptors, name)).catch(() => '')))
    if (targets.includes(target)) return true
  }
  return false
}

/**
 * Removes images, each in full or not at all. One that a machine is found to run from is put back as it was.
 * @returns those that were removed
 * @throws Kosa8Error IMAGE_IN_USE while images are made in the folder, for then there is no knowing.
 */
export async function removeImages(images: readonly ImageManifest[], imagesDirectory: string): Promise<ImageManifest[]> {
  const busy = new AbortController()
  return withLock(path.join(imagesDirectory, '.lock'), { signal: busy.signal, onWait: () => busy.abort() }, async () => {
    const removed: ImageManifest[] = []
    for (const image of images) if (await removeUnlessRunning(image, imagesDirectory)) removed.push(image)
    return removed
  }).catch((error: unknown) => {
    if (!busy.signal.aborted) throw error
    throw new Kosa8Error('IMAGE_IN_USE', 'an image is being built or imported at the moment', { hint: 'try again when that has ended' })
  })
}

async function removeUnlessRunning(image: ImageManifest, imagesDirectory: string): Promise<boolean> {
  if (await isImageRunning(imagesDirectory, image)) return false
  const folder = imageFolder(imagesDirectory, image.name, image.hash)
  const doomed = path.join(imagesDirectory, `.removed-${randomUUID()}`)
  // From here on no machine can start from it; one that started in between has its disk open.
  await rename(folder, doomed)
  const disk = path.join(doomed, IMAGE_FILES.rootDisk)
  if (await isOpen(disk) || await isDiskLocked(disk)) {
    await rename(doomed, folder)
    return false
  }
  await rmdir(path.dirname(folder)).catch(() => undefined) // other versions stay
  await rm(doomed, { recursive: true, force: true })
  return true
}
