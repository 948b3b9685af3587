/**
 * Who a process is, so that a reused process number is never mistaken for it.
 *
 * Owns: reading /proc/<pid>/stat. Callers: records of processes in `store`, `queue` (redis-server),
 * `hypervisor`, `daemon`.
 */
import { readFileSync } from 'node:fs'

/** A process: its number and its start time in clock ticks since boot. Unique until the next boot. */
export interface ProcessIdentity {
  pid: number
  startTicks: number
}

/** Positions of `num_threads` and `starttime` among the fields after the command name, which may itself hold spaces. */
const THREADS_FIELD = 17
const START_TIME_FIELD = 19

/** The identity of a live process, or null when there is none with this number (a zombie counts as none). */
export function readProcessIdentity(pid: number): ProcessIdentity | null {
  let stat: string
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  } catch {
    return null
  }
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  const startTicks = Number(fields[START_TIME_FIELD])
  // Of a process that is ending the first thread may be gone before the others, and its files are open until the last one is.
  const hasEnded = fields[0] === 'X' || (fields[0] === 'Z' && Number(fields[THREADS_FIELD]) <= 1)
  if (hasEnded || !Number.isSafeInteger(startTicks)) return null
  return { pid, startTicks }
}

/** The identity of this process. */
export function ownProcessIdentity(): ProcessIdentity {
  const identity = readProcessIdentity(process.pid)
  if (identity === null) throw new Error('/proc does not show this process')
  return identity
}

/** True while the very process that was recorded is alive. */
export function isProcessAlive(identity: ProcessIdentity): boolean {
  return readProcessIdentity(identity.pid)?.startTicks === identity.startTicks
}
