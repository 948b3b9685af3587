/**
 * A throw-away repository beside the user's: it reads the user's objects, keeps new ones to itself, and has
 * none of the user's settings.
 *
 * Owns: its life, and the one door through which objects enter the user's repository. Everything that comes
 * from a guest is looked at in here first.
 */
import { copyFile, mkdtemp, readdir, rm, stat, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { makeFolder } from '../util/make-folder.js'
import { isProcessAlive, ownProcessIdentity } from '../util/process-identity.js'
import { pipeGit, runGit, type GitPlace } from './host-git.js'
import { BYTE_WISE_ATTRIBUTES, privateConfig } from './private-git.js'
import { placeOf, type Repository } from './repository.js'

/** A scratch repository in use. */
export interface Scratch {
  place: GitPlace
  folder: string
}

/** Makes a scratch repository for the time `work` runs. */
export async function withScratch<T>(repository: Repository, work: (scratch: Scratch) => Promise<T>): Promise<T> {
  const scratch = await createScratch(repository)
  try {
    return await work(scratch)
  } finally {
    await removeScratch(scratch)
  }
}

/** Makes a scratch repository; {@link removeScratch} takes it away. */
export async function createScratch(repository: Repository): Promise<Scratch> {
  const { pid, startTicks } = ownProcessIdentity()
  const folder = await mkdtemp(path.join(tmpdir(), `kosa8-git-${pid}-${startTicks}-`))
  try {
    for (const part of ['refs', 'objects/info', 'objects/pack', 'info']) await makeFolder(path.join(folder, part))
    await writeFile(path.join(folder, 'HEAD'), 'ref: refs/heads/kosa8\n')
    await writeFile(path.join(folder, 'config'), privateConfig(repository.objectFormat))
    await writeFile(path.join(folder, 'info/attributes'), BYTE_WISE_ATTRIBUTES)
    await writeFile(path.join(folder, 'objects/info/alternates'), `${quoteAlternate(path.join(repository.commonDir, 'objects'))}\n`)
    await copyIfThere(path.join(repository.commonDir, 'shallow'), path.join(folder, 'shallow'))
  } catch (error) {
    await rm(folder, { recursive: true, force: true })
    throw error
  }
  return { folder, place: { kind: 'private', gitDir: folder } }
}

/** Removes the scratch repositories of processes that were killed. */
export async function removeAbandonedScratch(): Promise<void> {
  for (const name of await readdir(tmpdir())) {
    const [, pid, startTicks] = /^kosa8-git-(\d+)-(\d+)-/.exec(name) ?? []
    if (pid === undefined || isProcessAlive({ pid: Number(pid), startTicks: Number(startTicks) })) continue
    // Somebody else's stays: it is theirs to remove.
    await rm(path.join(tmpdir(), name), { recursive: true, force: true }).catch(() => undefined)
  }
}

/** Removes a scratch repository with everything in it. */
export async function removeScratch(scratch: Scratch): Promise<void> {
  await rm(scratch.folder, { recursive: true, force: true, maxRetries: 3 })
}

function quoteAlternate(folder: string): string {
  return /^["#]|\n/.test(folder) ? JSON.stringify(folder) : folder
}

/**
 * Copies a file that may not be there, with its time, by which git knows how far to trust an index.
 * @returns whether it was there.
 */
export async function copyIfThere(from: string, to: string): Promise<boolean> {
  try {
    const { mtimeMs } = await stat(from)
    await copyFile(from, to)
    // Rounded down: git then looks at more files, never at fewer.
    await utimes(to, Math.floor(mtimeMs / 1000), Math.floor(mtimeMs / 1000))
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false
    throw error
  }
}

/** Up to this many objects are stored one by one, as `git fetch` does; more become a pack. */
const LOOSE_OBJECTS_MAX = 100

/** Brings a commit and what it needs from the scratch repository into the user's, given what is there already. */
export async function keepCommit(
  scratch: Scratch, repository: Repository, commit: string, known: string[], signal?: AbortSignal,
): Promise<void> {
  const revisions = [commit, ...known.map((oid) => `^${oid}`)].join('\n') + '\n'
  const list = await runGit(scratch.place, ['rev-list', '--objects', '--stdin'], {
    stdin: revisions, outputBytesMax: 512 * 1024 * 1024, signal,
  })
  const isFew = countLines(list, LOOSE_OBJECTS_MAX + 1) <= LOOSE_OBJECTS_MAX
  await pipeGit(
    { place: scratch.place, args: ['pack-objects', '--revs', '--stdout', '-q', '--delta-base-offset'], stdin: revisions },
    { place: placeOf(repository), args: isFew ? ['unpack-objects', '-q'] : ['index-pack', '--stdin'] },
    signal,
  )
}

function countLines(text: Buffer, max: number): number {
  let count = 0
  for (let at = text.indexOf(10); at !== -1 && count < max; at = text.indexOf(10, at + 1)) count += 1
  return count
}
