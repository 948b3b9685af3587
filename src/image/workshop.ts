/**
 * The place in which images are made: a folder of its own inside the images folder, for one builder at a time.
 *
 * Owns: the lock, room on the disk, tidying up, and that an image is there in full or not at all (made in a folder
 * beside, renamed last; what dead builders left is removed by the next). Called by `build.ts` and `import/`.
 */
import { randomUUID } from 'node:crypto'
import { mkdir, open, readdir, rename, statfs, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { Kosa8Error, toKosa8Error } from '../errors/kosa8-error.js'
import { makeFolder } from '../util/make-folder.js'
import { runProgram } from '../util/spawn.js'
import { withLock } from './lock.js'
import type { BuildSteps } from './steps.js'
import { IMAGE_FILES, imageFolder, type ImageManifest } from './store.js'

const MIB = 1024 * 1024
const MAKE_ROOM = 'free some disk space, or set KOSA8_IMAGES_DIR to a folder on a larger disk'

/** Tells the bytes an ordinary user may still write below a folder. */
export type ReadFreeBytes = (folder: string) => Promise<number>

/** Runs `work` while nobody else makes an image there; what it leaves half-made is removed, however it ends. */
export async function inWorkshop<T>(imagesDirectory: string, steps: BuildSteps, work: () => Promise<T>): Promise<T> {
  await makeFolder(imagesDirectory, 0o755)
  const onWait = (): void => steps.note('wait for another build to end')
  return withLock(path.join(imagesDirectory, '.lock'), { signal: steps.signal, onWait }, async () => {
    await removeLeftovers(imagesDirectory)
    try {
      return await work()
    } finally {
      await removeLeftovers(imagesDirectory)
    }
  }).catch(async (error: unknown) => { throw await nameDisk(imagesDirectory, error) })
}

/** Programs that find a disk full do not say which; by now what was half-made is gone, and what it took is free. */
async function nameDisk(imagesDirectory: string, thrown: unknown): Promise<unknown> {
  const error = toKosa8Error(thrown)
  if (error.code !== 'DISK_FULL' || error.details['neededBytes'] !== undefined) return thrown
  const freeMib = Math.floor(await readFreeBytes(imagesDirectory) / MIB)
  return new Kosa8Error('DISK_FULL', `${error.message}; ${imagesDirectory} has ${freeMib} MiB left now that the half-made image is removed`, {
    hint: MAKE_ROOM, details: error.details, cause: thrown,
  })
}

/** What a builder that died left; the caller holds the lock, so nobody is at work here. */
async function removeLeftovers(imagesDirectory: string): Promise<void> {
  const names = (await readdir(imagesDirectory)).filter((name) => /^\.(building|removed)-/.test(name))
  if (names.length === 0) return
  // Not Node's rm: a build of a whole system may have left a mount behind, and that stays untouched.
  await runProgram('rm', ['-rf', '--one-file-system', '--', ...names.map((name) => path.join(imagesDirectory, name))])
}

/**
 * Makes a folder to work in, with `image` in it for the result.
 * @param mode 0o700 where programs of others lie in it for a while, setuid ones too
 */
export async function makeWorkFolder(imagesDirectory: string, mode: number): Promise<{ workFolder: string; result: string }> {
  const workFolder = path.join(imagesDirectory, `.building-${randomUUID()}`)
  const result = path.join(workFolder, 'image')
  await mkdir(workFolder, { mode })
  await mkdir(result, { mode: 0o755 })
  return { workFolder, result }
}

/** Bytes an ordinary user may still write below a folder. */
export async function readFreeBytes(folder: string): Promise<number> {
  const { bavail, bsize } = await statfs(folder)
  return bavail * bsize
}

/** @throws Kosa8Error DISK_FULL naming need and what is free. */
export async function checkFreeSpace(folder: string, need: number, read: ReadFreeBytes): Promise<void> {
  const free = await read(folder)
  if (free >= need) return
  const [needMib, freeMib] = [Math.ceil(need / MIB), Math.floor(free / MIB)]
  throw new Kosa8Error('DISK_FULL', `the image needs ${needMib} MiB in ${folder} while it is built, ${freeMib} MiB are free`, {
    hint: MAKE_ROOM,
    details: { neededBytes: need, freeBytes: free },
  })
}

/** Makes an image of its files. Everything is on the disk before the rename. */
export async function commitImage(folder: string, imagesDirectory: string, manifest: ImageManifest): Promise<void> {
  await writeFile(path.join(folder, IMAGE_FILES.manifest), `${JSON.stringify(manifest, null, 2)}\n`)
  const target = imageFolder(imagesDirectory, manifest.name, manifest.hash)
  await makeFolder(path.dirname(target), 0o755)
  for (const name of [...Object.values(IMAGE_FILES), '.']) await flush(path.join(folder, name))
  await rename(folder, target)
  await flush(path.dirname(target))
}

async function flush(file: string): Promise<void> {
  const handle = await open(file, 'r')
  await handle.sync().finally(() => handle.close())
}
