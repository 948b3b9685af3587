/** What `kosa8 doctor` sees of the host by itself: programs, disk, memory. Changes nothing but a file it removes. */
import { constants } from 'node:fs'
import { copyFile, mkdtemp, readFile, rm, statfs, writeFile } from 'node:fs/promises'
import path from 'node:path'
import type { Settings } from '../../config/environment.js'
import { Kosa8Error, toKosa8Error } from '../../errors/kosa8-error.js'
import { prepareHome } from '../../sdk/daemon-process.js'
import { setupCommand } from '../../util/package-root.js'
import { runProgram } from '../../util/spawn.js'
import { fine, type Check } from './check.js'

/** Free space below which checkpoints soon fail, and below which it is worth a remark, bytes. */
const DISK_BYTES_MIN = 512 * 1024 ** 2
const DISK_BYTES_LOW = 4 * 1024 ** 3
/** Free memory below which not even a small sandbox starts, and below which few clones fit, bytes. */
const MEMORY_BYTES_MIN = 256 * 1024 ** 2
const MEMORY_BYTES_LOW = 1024 ** 3
const PROGRAM_TIMEOUT_MS = 10_000

const PROGRAMS = [
  { name: 'qemu', program: 'qemu-system-x86_64', version: /version ([\d.]+)/ },
  { name: 'git', program: 'git', version: /version ([\d.]+)/ },
  { name: 'tar', program: 'tar', version: /([\d.]+)$/m },
  { name: 'flock', program: 'flock', version: /([\d.]+)$/m },
]

/** Every check of the host. */
export async function checkHost(settings: Settings): Promise<Check[]> {
  const own = [checkPlatform(), fine('node', `${process.version} at ${process.execPath}`)]
  const found = await Promise.all([
    ...PROGRAMS.map(checkProgram), checkRedis(settings), checkMemory(), checkPressure(),
  ])
  return [...own, ...found, ...await checkHome(settings.home)]
}

function checkPlatform(): Check {
  if (process.platform === 'linux' && process.arch === 'x64') return fine('host', 'Linux on x86_64')
  return { name: 'host', state: 'problem', message: `${process.platform} on ${process.arch}`, cure: 'use a Linux host with an x86_64 processor' }
}

async function checkProgram({ name, program, version }: (typeof PROGRAMS)[number]): Promise<Check> {
  try {
    const { stdout } = await runProgram(program, ['--version'], { timeoutMs: PROGRAM_TIMEOUT_MS })
    return fine(name, `${program} ${version.exec(stdout.toString().trim())?.[1] ?? 'of unknown version'}`)
  } catch (error) {
    const cure = Kosa8Error.isInstance(error) && error.code === 'PROGRAM_MISSING' ? `install it with: ${setupCommand()}` : 'see whether it runs by hand'
    return { name, state: 'problem', message: toKosa8Error(error).message, cure }
  }
}

async function checkRedis({ redisUrl }: Settings): Promise<Check> {
  if (redisUrl !== null) return fine('redis', 'the server REDIS_URL names is used')
  return checkProgram({ name: 'redis', program: 'redis-server', version: /v=([\d.]+)/ })
}

async function checkMemory(): Promise<Check> {
  const text = await readFile('/proc/meminfo', 'utf8').catch(() => '')
  const availableBytes = Number(/^MemAvailable:\s+(\d+) kB$/m.exec(text)?.[1] ?? 0) * 1024
  const message = `${toGib(availableBytes)} available`
  if (availableBytes >= MEMORY_BYTES_LOW) return fine('memory', message)
  const state = availableBytes < MEMORY_BYTES_MIN ? 'problem' : 'warning'
  return { name: 'memory', state, message, cure: 'end what needs memory, or use smaller sandboxes (--mem 256M)' }
}

async function checkPressure(): Promise<Check> {
  const text = await readFile('/proc/pressure/memory', 'utf8').catch(() => null)
  if (text !== null) return fine('pressure', `memory ${/some (avg10=[\d.]+)/.exec(text)?.[1] ?? ''}`)
  return { name: 'pressure', state: 'warning', message: 'this kernel does not tell memory pressure; free memory alone is watched', cure: 'boot with psi=1' }
}

async function checkHome(home: string): Promise<Check[]> {
  try {
    await prepareHome(home)
    return await Promise.all([checkDisk(home), checkReflink(home)])
  } catch (thrown) {
    const { message, hint } = toKosa8Error(thrown)
    return [{ name: 'home', state: 'problem', message, cure: hint ?? 'see whether files can be written there' }]
  }
}

async function checkDisk(home: string): Promise<Check> {
  const { bavail, bsize } = await statfs(home)
  const freeBytes = bavail * bsize
  const message = `${toGib(freeBytes)} free at ${home}`
  if (freeBytes >= DISK_BYTES_LOW) return fine('disk', message)
  const state = freeBytes < DISK_BYTES_MIN ? 'problem' : 'warning'
  return { name: 'disk', state, message, cure: 'remove runs and checkpoints (kosa8 runs rm, kosa8 checkpoint rm), or put KOSA8_HOME on a larger disk' }
}

/** Tried with a file, since the type of the file system alone does not tell. */
async function checkReflink(home: string): Promise<Check> {
  const folder = await mkdtemp(path.join(home, '.doctor-'))
  try {
    await writeFile(path.join(folder, 'a'), 'x'.repeat(4096))
    const hasReflink = await copyFile(path.join(folder, 'a'), path.join(folder, 'b'), constants.COPYFILE_FICLONE_FORCE).then(() => true, () => false)
    return fine('reflink', hasReflink ? 'checkpoints share blocks of memory files' : 'not offered by this file system (XFS and btrfs do): each checkpoint has a copy of the memory in use')
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

function toGib(bytes: number): string {
  return `${(bytes / 1024 ** 3).toFixed(1)} GiB`
}
