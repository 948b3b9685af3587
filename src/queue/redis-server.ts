/**
 * Our own redis-server: private, on a unix socket only, outliving the daemon that started it.
 *
 * Owns: starting, finding again, watching over and ending that process. Does not own: what is in it.
 * Called by the daemon; with REDIS_URL none of this is used.
 */
import { closeSync, openSync } from 'node:fs'
import { readFile, rename, rm, stat } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { z } from 'zod'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { writeFileAtomic } from '../util/atomic-write.js'
import { makeFolder } from '../util/make-folder.js'
import { setupCommand } from '../util/package-root.js'
import { isProcessAlive, readProcessIdentity, type ProcessIdentity } from '../util/process-identity.js'
import { spawnProgram } from '../util/spawn.js'
import { connectOnce } from './redis-client.js'

/** Where our server lives. */
export interface RedisServerConfig {
  /** Its private folder: append-only file, log, record of its process. */
  directory: string
  socketPath: string
  /** `no` loses all jobs with the process; for tests. */
  persistence?: 'yes' | 'no'
}

/** A live server of ours. */
export interface RedisServer {
  socketPath: string
  process: ProcessIdentity
}

/** What {@link superviseRedis} tells its caller. */
export interface RedisWatcher {
  /** The server had ended and runs again; with persistence its jobs are back. */
  onRestart?(server: RedisServer): void
  /** It could not be started again; the next try follows. */
  onFailure?(error: unknown): void
}

const recordSchema = z.object({ pid: z.number().int().positive(), startTicks: z.number().int().nonnegative() })

const START_TIMEOUT_MS = 15_000
const PING_TIMEOUT_MS = 2000
/** A server asked to end writes its file first; after this it is killed. */
const STOP_TIMEOUT_MS = 5000
const EXIT_POLL_MS = 20
const RESTART_DELAY_MS = 500
/** The log of earlier starts is kept once, in redis.log.1. */
const LOG_BYTES_MAX = 1024 * 1024

/**
 * Finds our server or starts it; it is ready when this resolves, and goes on when we end.
 * @throws Kosa8Error PROGRAM_MISSING; QUEUE_UNREACHABLE with what its log says last.
 */
export async function startRedis(config: RedisServerConfig): Promise<RedisServer> {
  await makeFolder(config.directory, 0o700)
  await makeFolder(path.dirname(config.socketPath), 0o700)
  // Asked even without a record: two servers on one file would destroy it. One that is known and silent may
  // still be loading: it gets the time a start may take, then it is replaced.
  const recorded = await readRecordedProcess(config)
  const found = await findRedis(config, recorded === null ? PING_TIMEOUT_MS : START_TIMEOUT_MS)
  if (found !== null) return found
  if (recorded !== null) await endProcess(recorded)
  await rm(config.socketPath, { force: true })
  return launch(config)
}

/** Our server if it answers; null otherwise. */
export async function findRedis(config: RedisServerConfig, timeoutMs = PING_TIMEOUT_MS): Promise<RedisServer | null> {
  try {
    const client = await connectOnce({ socketPath: config.socketPath }, timeoutMs)
    const pid = Number(/^process_id:(\d+)/m.exec(await client.info('server'))?.[1])
    client.disconnect()
    const process = readProcessIdentity(pid)
    return process === null ? null : { socketPath: config.socketPath, process }
  } catch {
    return null
  }
}

/** Ends our server if there is one; its jobs are on disk when this resolves. A reused process number is spared. */
export async function stopRedis(config: RedisServerConfig): Promise<void> {
  const process = (await findRedis(config))?.process ?? await readRecordedProcess(config)
  if (process !== null) await endProcess(process)
  await rm(config.socketPath, { force: true })
  await rm(recordFile(config), { force: true })
}

/** Watches over our server and starts it again whenever it ends, until the signal fires; leaves it running then. */
export async function superviseRedis(config: RedisServerConfig, watcher: RedisWatcher, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      await waitUntilGone(config, signal)
      if (signal.aborted) return
      // Not inside the optional call: without a listener its argument would never be evaluated.
      const server = await startRedis(config)
      watcher.onRestart?.(server)
    } catch (error) {
      watcher.onFailure?.(error)
      await pause(RESTART_DELAY_MS, signal)
    }
  }
}

async function launch(config: RedisServerConfig): Promise<RedisServer> {
  await rotateLog(config)
  const log = openSync(logFile(config), 'a', 0o600)
  const child = spawnProgram('redis-server', serverArguments(config), {
    cwd: config.directory, detached: true, stdio: ['ignore', log, log],
  })
  closeSync(log)
  const failed = new Promise<never>((_, reject) => {
    child.once('error', (error: NodeJS.ErrnoException) => reject(startError(error)))
    child.once('exit', () => void lastLogLine(config).then((line) => reject(endedEarly(line))))
  })
  failed.catch(() => undefined)
  const process = child.pid === undefined ? null : readProcessIdentity(child.pid)
  if (process === null) return failed
  child.unref()
  try {
    await writeFileAtomic(recordFile(config), JSON.stringify(process))
    return await Promise.race([waitUntilAnswering(config), failed])
  } catch (error) {
    await endProcess(process)
    throw error
  }
}

/** Bound to no port: only this user, through a folder of mode 0700, can reach it. */
function serverArguments(config: RedisServerConfig): string[] {
  const settings: Record<string, string> = {
    port: '0', unixsocket: config.socketPath, unixsocketperm: '700', 'protected-mode': 'yes', daemonize: 'no',
    dir: config.directory, logfile: '', loglevel: 'notice', save: '',
    appendonly: config.persistence ?? 'yes', appendfsync: 'everysec', 'maxmemory-policy': 'noeviction',
  }
  return Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value])
}

async function waitUntilAnswering(config: RedisServerConfig): Promise<RedisServer> {
  const deadline = performance.now() + START_TIMEOUT_MS
  for (;;) {
    const server = await findRedis(config)
    if (server !== null) return server
    if (performance.now() > deadline) throw endedEarly(`no answer within ${START_TIMEOUT_MS} ms`)
    await pause(EXIT_POLL_MS)
  }
}

/** Holds one connection and resolves when it breaks: that is noticed at once and costs nothing meanwhile. */
async function waitUntilGone(config: RedisServerConfig, signal: AbortSignal): Promise<void> {
  const client = await connectOnce({ socketPath: config.socketPath }, PING_TIMEOUT_MS).catch(() => null)
  if (client === null) return
  const onAbort = (): void => client.disconnect()
  signal.addEventListener('abort', onAbort, { once: true })
  if (signal.aborted) client.disconnect()
  await new Promise<void>((resolve) => {
    client.once('end', resolve)
    if (client.status === 'end') resolve()
  })
  signal.removeEventListener('abort', onAbort)
}

async function readRecordedProcess(config: RedisServerConfig): Promise<ProcessIdentity | null> {
  try {
    const identity = recordSchema.parse(JSON.parse(await readFile(recordFile(config), 'utf8')))
    return isProcessAlive(identity) ? identity : null
  } catch {
    // No record, or a damaged one: the server itself is asked over its socket.
    return null
  }
}

async function endProcess(identity: ProcessIdentity): Promise<void> {
  for (const name of ['SIGTERM', 'SIGKILL'] as const) {
    if (!isProcessAlive(identity)) return
    process.kill(identity.pid, name)
    const deadline = performance.now() + STOP_TIMEOUT_MS
    while (isProcessAlive(identity) && performance.now() < deadline) await pause(EXIT_POLL_MS)
  }
}

async function rotateLog(config: RedisServerConfig): Promise<void> {
  const sizeBytes = (await stat(logFile(config)).catch(() => null))?.size ?? 0
  if (sizeBytes > LOG_BYTES_MAX) await rename(logFile(config), `${logFile(config)}.1`)
}

async function lastLogLine(config: RedisServerConfig): Promise<string> {
  const text = await readFile(logFile(config), 'utf8').catch(() => '')
  return text.trimEnd().split('\n').at(-1) ?? ''
}

function startError(error: NodeJS.ErrnoException): Kosa8Error {
  if (error.code !== 'ENOENT') return endedEarly(error.message)
  return new Kosa8Error('PROGRAM_MISSING', 'the program redis-server is not installed', {
    hint: `install it, or name a Redis of yours in REDIS_URL; all that kosa8 needs: ${setupCommand()}`, details: { program: 'redis-server' }, cause: error,
  })
}

function endedEarly(line: string): Kosa8Error {
  return new Kosa8Error('QUEUE_UNREACHABLE', `redis-server did not start: ${line}`, {
    hint: 'its log is redis.log in the folder redis of the state home',
  })
}

async function pause(durationMs: number, signal?: AbortSignal): Promise<void> {
  await setTimeout(durationMs, undefined, signal === undefined ? {} : { signal }).catch(() => undefined)
}

function recordFile(config: RedisServerConfig): string {
  return path.join(config.directory, 'redis.json')
}

function logFile(config: RedisServerConfig): string {
  return path.join(config.directory, 'redis.log')
}
