/**
 * A lock between processes of one user, as a file.
 *
 * Owns: taking it, giving it back, and breaking one whose holder has died. The file appears with its whole
 * content (by link), so whoever reads it knows the holder. Only `flock` may break it: the kernel lets one
 * breaker at a time compare and remove, so a lock that was taken anew meanwhile is never removed.
 */
import { randomUUID } from 'node:crypto'
import { link, readFile, readlink, rm, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { temporaryNameFor } from './atomic-write.js'
import { makeFolder } from './make-folder.js'
import { isProcessAlive, ownProcessIdentity } from './process-identity.js'
import { runProgram } from './spawn.js'

/** How long others may hold the lock before waiting is given up, milliseconds. */
const WAIT_MS_MAX = 60_000
/** A holder that cannot be looked at (another container, another boot) is given up after this, milliseconds. */
const FOREIGN_MS_MAX = 30_000
/** Bounds of the random pause between two tries, milliseconds. */
const PAUSE_MS = { min: 2, max: 12 } as const
/** Removes the lock if it still has this very content. */
const BREAK = '[ "$(cat "$1")" = "$2" ] && rm -f "$1"; exit 0'

interface Holder {
  pid: number
  startTicks: number
  /** Where the pid means something: boot and pid namespace. */
  place: string
}

/**
 * Runs `work` while holding the lock `file`.
 * @throws Kosa8Error TIMED_OUT when others hold it for more than a minute.
 */
export async function withFileLock<T>(file: string, work: () => Promise<T>): Promise<T> {
  await makeFolder(path.dirname(file), 0o700)
  const place = await ownPlace()
  const own = temporaryNameFor(file)
  try {
    await writeFile(own, JSON.stringify({ ...ownProcessIdentity(), place, id: randomUUID() }), { flag: 'wx', mode: 0o600 })
    await waitForLink(own, file, place)
  } finally {
    await rm(own, { force: true })
  }
  try {
    return await work()
  } finally {
    await rm(file, { force: true })
  }
}

async function waitForLink(own: string, file: string, place: string): Promise<void> {
  const deadline = performance.now() + WAIT_MS_MAX
  while (!await tryLink(own, file)) {
    await breakIfStale(file, place)
    if (performance.now() > deadline) {
      throw new Kosa8Error('TIMED_OUT', `others have held the lock ${file} for more than ${WAIT_MS_MAX / 1000} s`, {
        hint: `if no other kosa8 is at work, remove it: rm ${file}`,
      })
    }
    await pause()
  }
}

async function tryLink(own: string, file: string): Promise<boolean> {
  return link(own, file).then(() => true, (error: NodeJS.ErrnoException) => {
    if (error.code === 'EEXIST') return false
    throw error
  })
}

async function breakIfStale(file: string, place: string): Promise<void> {
  const text = await readFile(file, 'utf8').catch(() => null)
  if (text === null || !await isStale(file, text, place)) return
  await runProgram('flock', [`${file}.break`, 'sh', '-c', BREAK, 'sh', file, text])
}

async function isStale(file: string, text: string, place: string): Promise<boolean> {
  const holder = parseHolder(text)
  if (holder?.place === place) return !isProcessAlive(holder)
  const found = await stat(file).catch(() => null)
  return found !== null && Date.now() - found.mtimeMs > FOREIGN_MS_MAX
}

function parseHolder(text: string): Holder | null {
  try {
    return JSON.parse(text) as Holder
  } catch {
    return null
  }
}

async function ownPlace(): Promise<string> {
  const boot = (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim()
  return `${boot} ${await readlink('/proc/self/ns/pid')}`
}

function pause(): Promise<void> {
  const ms = PAUSE_MS.min + Math.random() * (PAUSE_MS.max - PAUSE_MS.min)
  return new Promise((resolve) => setTimeout(resolve, ms))
}
