/**
 * A QEMU process: starting it in a session of its own, and learning how it ended.
 *
 * Owns: the spawn, inherited descriptors, the log. The process survives its owner; what it needs to be
 * found again is in its directory and its identity. Does not own QMP.
 */
import type { ChildProcess } from 'node:child_process'
import { open } from 'node:fs/promises'
import path from 'node:path'
import { Kosa8Error } from '../../errors/kosa8-error.js'
import { CleanupStack } from '../../util/cleanup.js'
import { createDeferred } from '../../util/deferred.js'
import { programMissing, spawnProgram } from '../../util/spawn.js'
import { identifyProcess, isAlive, killProcess, type ProcessIdentity } from './process-table.js'
import { listenIn } from './sockets.js'

/** Names of what lies in a machine's directory. */
export const MACHINE_FILE = { qmp: 'qmp', channel: 'channel', log: 'log', memory: 'memory' } as const

/** Most of QEMU's own output that is quoted in an error, bytes. */
const LOG_TAIL_BYTES = 2000

/** How to start QEMU. */
export interface SpawnConfig {
  program: string
  /** Folders the program is looked for in; nothing else of our environment reaches QEMU. */
  searchPath: string
  args: string[]
  /** Exists; becomes the working directory, by which a lost process is found. */
  directory: string
  /** Saved device state to be read on an inherited descriptor. */
  deviceFile: string | null
}

/** A process that runs, or has ended by now. */
export interface QemuProcess {
  readonly identity: ProcessIdentity
  /** Settles with how it ended, e.g. "signal SIGKILL"; never rejects. */
  readonly ended: Promise<string>
  /** Ends it and waits for that. */
  kill(): Promise<void>
}

/**
 * Starts QEMU.
 * @throws Kosa8Error PROGRAM_MISSING, MACHINE_START_FAILED.
 */
export async function spawnQemu(config: SpawnConfig): Promise<QemuProcess> {
  const opened = new CleanupStack()
  let child: ChildProcess
  try {
    child = spawnProgram(config.program, config.args, {
      cwd: config.directory,
      detached: true,
      env: { PATH: config.searchPath },
      stdio: await openInherited(config, opened),
    })
    await waitForSpawn(child, config.program)
  } finally {
    await opened.run()
  }
  child.unref()
  return adoptChild(child, config.directory)
}

/** Everything the process inherits, in the order of its descriptors; `opened` closes our copies. */
async function openInherited({ directory, deviceFile }: SpawnConfig, opened: CleanupStack): Promise<(number | 'ignore')[]> {
  const log = await open(path.join(directory, MACHINE_FILE.log), 'a', 0o600)
  opened.defer('close the log', () => log.close())
  const device = deviceFile === null ? null : await open(deviceFile, 'r')
  opened.defer('close the device state', () => device?.close())
  const qmp = await listenIn(directory, MACHINE_FILE.qmp)
  opened.defer('hand over the QMP socket', () => qmp.handOver())
  const channel = await listenIn(directory, MACHINE_FILE.channel)
  opened.defer('hand over the channel', () => channel.handOver())
  return ['ignore', log.fd, log.fd, device?.fd ?? 'ignore', qmp.descriptor, channel.descriptor]
}

function waitForSpawn(child: ChildProcess, program: string): Promise<void> {
  return new Promise((resolve, reject) => {
    child.once('spawn', resolve)
    child.once('error', (cause: NodeJS.ErrnoException) => {
      reject(cause.code === 'ENOENT'
        ? programMissing(program, cause)
        : new Kosa8Error('MACHINE_START_FAILED', `cannot start ${program}: ${cause.message}`, { cause }))
    })
  })
}

async function adoptChild(child: ChildProcess, directory: string): Promise<QemuProcess> {
  const ended = new Promise<string>((resolve) => {
    child.once('exit', (code, signal) => resolve(signal === null ? `exit status ${code}` : `signal ${signal}`))
  })
  const pid = child.pid ?? 0
  const identity = await identifyProcess(pid)
  if (identity === null) {
    const message = await describeEnd(directory, await ended)
    throw new Kosa8Error('MACHINE_START_FAILED', `QEMU ended at once: ${message}`)
  }
  return {
    identity,
    ended,
    kill: async () => {
      // Somebody waits for the end now: the owner's process must not run out of work before it.
      child.ref()
      await killProcess(identity)
      await ended
    },
  }
}

/**
 * Attaches to a process somebody else started; null when it has ended.
 * @param lost settles when QMP broke off: the process has ended or is beyond control, and is ended then
 */
export async function adoptProcess(identity: ProcessIdentity, lost: Promise<unknown>): Promise<QemuProcess | null> {
  if (!(await isAlive(identity))) return null
  const killed = createDeferred<void>()
  const kill = (): Promise<void> => killProcess(identity).finally(() => killed.resolve())
  const ended = Promise.race([killed.promise, lost.then(kill)]).then(() => 'unknown status')
  return { identity, ended, kill }
}

/** How a process ended, with the last lines it wrote. */
export async function describeEnd(directory: string, end: string): Promise<string> {
  const tail = await readTail(path.join(directory, MACHINE_FILE.log)).catch(() => '')
  return tail === '' ? end : `${end}: ${tail}`
}

async function readTail(file: string): Promise<string> {
  const handle = await open(file, 'r')
  try {
    const { size } = await handle.stat()
    const length = Math.min(size, LOG_TAIL_BYTES)
    const { buffer } = await handle.read(Buffer.alloc(length), 0, length, size - length)
    return buffer.toString('utf8').trim()
  } finally {
    await handle.close()
  }
}
