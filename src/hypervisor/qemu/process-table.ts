/**
 * What /proc says about a process: whether it is still the one we started, and what it uses.
 *
 * Owns: reading /proc. A process is named by pid and start time together, so that a pid the kernel
 * gave to somebody else is never touched.
 */
import { readdir, readFile, readlink } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'

/** Clock ticks per second in /proc; fixed on Linux for user space. */
const TICKS_PER_SECOND = 100
/** How often a process that is nobody's child here is looked at while it ends, milliseconds. */
const END_CHECK_MS = 2

/** A process, beyond the life of its pid. */
export interface ProcessIdentity {
  pid: number
  /** Clock ticks since the host booted. */
  startTicks: number
}

/** State of a process now. */
interface ProcessState {
  startTicks: number
  /** Ended, and only waiting for its parent to notice. */
  isZombie: boolean
  cpuMs: number
}

async function readState(pid: number): Promise<ProcessState | null> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => null)
  if (stat === null) return null
  // The name in parentheses may hold spaces and parentheses: fields are counted after the last one.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return {
    isZombie: fields[0] === 'Z' || fields[0] === 'X',
    cpuMs: (Number(fields[11]) + Number(fields[12])) * (1000 / TICKS_PER_SECOND),
    startTicks: Number(fields[19]),
  }
}

/** Identity of a running process; null when there is none with this pid. */
export async function identifyProcess(pid: number): Promise<ProcessIdentity | null> {
  const state = await readState(pid)
  return state === null || state.isZombie ? null : { pid, startTicks: state.startTicks }
}

/** True while exactly this process runs. */
export async function isAlive({ pid, startTicks }: ProcessIdentity): Promise<boolean> {
  const state = await readState(pid)
  return state !== null && !state.isZombie && state.startTicks === startTicks
}

/** Processor time used so far, milliseconds; null when the process has ended. */
export async function readCpuMs({ pid, startTicks }: ProcessIdentity): Promise<number | null> {
  const state = await readState(pid)
  return state === null || state.startTicks !== startTicks ? null : state.cpuMs
}

/**
 * Bytes of memory that belong to this process alone: anonymous pages, in memory or swapped out. That is
 * the heap, translated code, and the copies of guest pages this machine has written. Pages of the mapped
 * memory file count to nobody: they are page cache, shared by all clones, and the kernel can drop them.
 */
export async function readPrivateBytes(pid: number): Promise<number> {
  const rollup = await readFile(`/proc/${pid}/smaps_rollup`, 'utf8')
  const kib = (field: string): number => Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(rollup)?.[1] ?? 0)
  return (kib('Anonymous') + kib('Swap')) * 1024
}

/** Ends exactly this process and waits until it is gone; a reused pid is spared. */
export async function killProcess(identity: ProcessIdentity): Promise<void> {
  if (!(await isAlive(identity))) return
  try {
    process.kill(identity.pid, 'SIGKILL')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
  while (await isAlive(identity)) await delay(END_CHECK_MS)
}

/** Finds the process that runs in `directory` and names `machineName`; null when there is none. */
export async function findProcess(directory: string, machineName: string): Promise<ProcessIdentity | null> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  for (const pid of pids) {
    const workingDirectory = await readlink(path.join('/proc', pid, 'cwd')).catch(() => '')
    if (workingDirectory !== directory && workingDirectory !== `${directory} (deleted)`) continue
    const commandLine = await readFile(path.join('/proc', pid, 'cmdline'), 'utf8').catch(() => '')
    if (commandLine.split('\0').includes(machineName)) return identifyProcess(Number(pid))
  }
  return null
}
