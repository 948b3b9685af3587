/**
 * Reads what the kernel says about memory: available, pressure, and the limits of our control groups.
 *
 * Owns: the file formats of procfs and of cgroup v1 and v2. The only impure part of `admission`.
 */
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import type { GroupMemory } from '../budget.js'

/** Where the kernel's files are mounted; other places in tests. */
export interface SignalRoots {
  proc: string
  cgroup: string
}

export const SYSTEM_ROOTS: SignalRoots = { proc: '/proc', cgroup: '/sys/fs/cgroup' }

/** Bytes; from /proc/meminfo. */
export interface HostMemory {
  totalBytes: number
  availableBytes: number
}

/** cgroup v1 says "no limit" with a number near 2^63. */
const NO_LIMIT_BYTES = 2 ** 60

/** Memory of the host. @throws Error when /proc/meminfo cannot be read. */
export async function readHostMemory(roots: SignalRoots = SYSTEM_ROOTS): Promise<HostMemory> {
  const text = await readFile(path.join(roots.proc, 'meminfo'), 'utf8')
  const field = (name: string): number => {
    const match = new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(text)
    if (match === null) throw new Error(`${roots.proc}/meminfo has no ${name}`)
    return Number(match[1]) * 1024
  }
  return { totalBytes: field('MemTotal'), availableBytes: field('MemAvailable') }
}

/** Percent of the last ten seconds in which some task waited for memory; null when the kernel does not say. */
export async function readMemoryStall(roots: SignalRoots = SYSTEM_ROOTS): Promise<number | null> {
  const text = await readIfThere(path.join(roots.proc, 'pressure', 'memory'))
  const match = /^some avg10=([\d.]+)/m.exec(text ?? '')
  return match === null ? null : Number(match[1])
}

/** The control groups that bound this process, from its own up to the root; those without a limit left out. */
export async function readGroups(roots: SignalRoots = SYSTEM_ROOTS): Promise<GroupMemory[]> {
  const text = (await readIfThere(path.join(roots.proc, 'self', 'cgroup'))) ?? ''
  const groups: GroupMemory[] = []
  for (const line of text.split('\n')) {
    const [, controllers, ...rest] = line.split(':')
    const groupPath = rest.join(':')
    if (controllers === '') groups.push(...await readHierarchy(roots.cgroup, groupPath, readGroupV2))
    if (controllers?.split(',').includes('memory') === true) {
      groups.push(...await readHierarchy(path.join(roots.cgroup, 'memory'), groupPath, readGroupV1))
    }
  }
  return groups
}

/**
 * Each level may have a limit of its own. In a container the path named may be the host's and not be
 * visible here; the levels that are not there are skipped, the mounted root is always looked at.
 */
async function readHierarchy(
  mount: string, groupPath: string, read: (folder: string) => Promise<GroupMemory | null>,
): Promise<GroupMemory[]> {
  const parts = groupPath.split('/').filter((part) => part !== '' && part !== '..')
  const folders = [...parts.keys()].map((count) => path.join(mount, ...parts.slice(0, count + 1)))
  const groups = await Promise.all([mount, ...folders].map(read))
  return groups.filter((group) => group !== null)
}

async function readGroupV2(folder: string): Promise<GroupMemory | null> {
  const limits = await Promise.all(['memory.max', 'memory.high'].map((name) => readBytes(path.join(folder, name))))
  return toGroup(folder, limits, 'memory.current', 'inactive_file')
}

async function readGroupV1(folder: string): Promise<GroupMemory | null> {
  const limits = [await readBytes(path.join(folder, 'memory.limit_in_bytes'))]
  return toGroup(folder, limits, 'memory.usage_in_bytes', 'total_inactive_file')
}

async function toGroup(folder: string, limits: (number | null)[], usageName: string, inactiveName: string): Promise<GroupMemory | null> {
  const known = limits.filter((limit) => limit !== null && limit < NO_LIMIT_BYTES) as number[]
  const usageBytes = await readBytes(path.join(folder, usageName))
  if (known.length === 0 || usageBytes === null) return null
  const stat = (await readIfThere(path.join(folder, 'memory.stat'))) ?? ''
  const inactive = new RegExp(`^${inactiveName} (\\d+)$`, 'm').exec(stat)
  return { limitBytes: Math.min(...known), workingSetBytes: Math.max(0, usageBytes - Number(inactive?.[1] ?? 0)) }
}

/** Null for a file that is not there and for "max". */
async function readBytes(file: string): Promise<number | null> {
  const text = (await readIfThere(file))?.trim() ?? ''
  return /^\d+$/.test(text) ? Number(text) : null
}

async function readIfThere(file: string): Promise<string | null> {
  try {
    return await readFile(file, 'utf8')
  } catch {
    return null
  }
}
