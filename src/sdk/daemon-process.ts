/**
 * The daemon as a process: starting it in the background and waiting for it to answer or to end.
 *
 * Two clients may start one at the same time: the daemon that finds the socket taken ends, and both clients
 * talk to the other. So an early end is an error only if nobody answers after it.
 */
import { constants, watch } from 'node:fs'
import { access, open, readFile, statfs } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import type { Settings } from '../config/environment.js'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { makeFolder } from '../util/make-folder.js'
import { findPackageRoot } from '../util/package-root.js'
import { prepareSocketFolder } from '../util/socket-path.js'
import { spawnProgram } from '../util/spawn.js'

/** How long a daemon may take until it answers, milliseconds: it finds its machines again first. */
const START_DEADLINE_MS = 60_000
/** How long a daemon may take to end once asked, milliseconds. */
const STOP_DEADLINE_MS = 30_000
/** How often we look again when nothing tells us, milliseconds. */
const LOOK_AGAIN_MS = 100
/** Entry file of the daemon, relative to the package. */
const DAEMON_ENTRY = 'dist/src/daemon/main.js'
/** Lines of the daemon's log that an error shows. */
const LOG_LINES = 5

/** What starting a daemon needs. */
export interface DaemonStart {
  settings: Settings
  env: NodeJS.ProcessEnv
  /** True once a daemon of our version answers. */
  answers: () => Promise<boolean>
}

/** Where the daemon of a home writes its log. */
export function daemonLogOf(home: string): string {
  return path.join(home, 'daemon.log')
}

/** Makes the state folder, unless it is there. @throws CONFIG_INVALID where nothing can be written. */
export async function prepareHome(home: string): Promise<void> {
  try {
    await makeFolder(home, 0o700)
    await access(home, constants.R_OK | constants.W_OK | constants.X_OK)
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException
    if (code === 'ENOSPC' || code === 'EDQUOT') throw error
    throw new Kosa8Error('CONFIG_INVALID', `the state folder ${home} cannot be used: ${REFUSALS[code] ?? (error as Error).message}`, {
      hint: 'make it writable, or name another one with KOSA8_HOME', cause: error,
    })
  }
}

const REFUSALS: Record<string, string> = {
  EROFS: 'its file system is read-only', EACCES: 'you may not write there', EPERM: 'you may not write there',
  ENOTDIR: 'a part of the path is a file', EEXIST: 'it is a file', ENAMETOOLONG: 'the path is too long',
}

/** Starts the daemon and resolves when it answers. @throws DAEMON_UNREACHABLE with the end of its log. */
export async function startDaemon({ settings, env, answers }: DaemonStart): Promise<void> {
  await prepareHome(settings.home)
  await prepareSocketFolder(settings.socketPath)
  const log = await open(daemonLogOf(settings.home), 'a', 0o600)
  let ended: string | null = null
  let pid: number | undefined
  try {
    const child = spawnProgram(process.execPath, [path.join(findPackageRoot(), DAEMON_ENTRY)], {
      detached: true, stdio: ['ignore', log.fd, log.fd], env, cwd: '/',
    })
    pid = child.pid
    child.once('error', (error) => { ended = error.message })
    child.once('exit', (code, signal) => { ended = signal === null ? `it ended with status ${code}` : `it was ended by ${signal}` })
    child.unref()
  } finally {
    await log.close()
  }
  const deadline = performance.now() + START_DEADLINE_MS
  const watcher = watchFolder(path.dirname(settings.socketPath))
  try {
    while (!(await answers())) {
      if (ended !== null) {
        if (await answers()) return
        throw await describeFailure(settings.home, ended, pid)
      }
      if (performance.now() > deadline) throw await describeFailure(settings.home, `it did not answer within ${START_DEADLINE_MS / 1000} s`, pid)
      await watcher.changed(LOOK_AGAIN_MS)
    }
  } finally {
    watcher.close()
  }
}

/** Resolves when no process has this id any more. @throws DAEMON_UNREACHABLE when it stays. */
export async function waitForExit(pid: number): Promise<void> {
  const deadline = performance.now() + STOP_DEADLINE_MS
  while (isAlive(pid)) {
    if (performance.now() > deadline) {
      throw new Kosa8Error('DAEMON_UNREACHABLE', `the daemon (process ${pid}) did not end within ${STOP_DEADLINE_MS / 1000} s`)
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN_MS))
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

/** Tells when something in a folder changes; looks again by itself where that cannot be watched. */
function watchFolder(folder: string): { changed(timeoutMs: number): Promise<void>; close(): void } {
  let wake: () => void = () => undefined
  const watcher = watch(folder, () => wake())
  watcher.on('error', () => undefined)
  return {
    changed: (timeoutMs) => new Promise((resolve) => {
      const timer = setTimeout(resolve, timeoutMs)
      wake = () => { clearTimeout(timer); resolve() }
    }),
    close: () => watcher.close(),
  }
}

async function describeFailure(home: string, reason: string, pid: number | undefined): Promise<Kosa8Error> {
  const file = daemonLogOf(home)
  const freeBlocks = await statfs(home).then(({ bavail }) => bavail, () => 1)
  if (freeBlocks === 0) {
    return new Kosa8Error('DISK_FULL', `the daemon could not be started: no space left on the disk of ${home}`, {
      hint: `make room elsewhere on that disk, or remove ${path.join(home, 'daemon.log')} or folders of ended runs in ${path.join(home, 'runs')}; then run the same command again`,
    })
  }
  const text = await readFile(file, 'utf8').catch(() => '')
  const lines = text.trimEnd().split('\n').slice(-LOG_LINES)
  const said = lastWordsOf(pid, lines.at(-1) ?? '')
  return new Kosa8Error('DAEMON_UNREACHABLE', `the daemon could not be started: ${said?.message ?? reason}`, {
    hint: [...said?.hint === undefined ? [] : [said.hint], `its log is ${file}`].join('; '), details: { log: lines },
  })
}

const lastWordsSchema = z.object({ pid: z.number(), err: z.object({ message: z.string(), hint: z.string().optional() }) })

/** Why that very daemon gave up, by the last line of its log; null where it says nothing. */
function lastWordsOf(pid: number | undefined, line: string): z.infer<typeof lastWordsSchema>['err'] | null {
  try {
    const entry = lastWordsSchema.parse(JSON.parse(line))
    return entry.pid === pid ? entry.err : null
  } catch {
    return null
  }
}
