/**
 * Files and folders between the host and a sandbox.
 *
 * Owns: what a target means (a folder that is there gets the source inside), and that a copy which fails leaves
 * nothing half made on the host. Folders travel as tar archives, written by the sandbox's own `tar` and the host's.
 */
import { randomUUID } from 'node:crypto'
import { createReadStream, createWriteStream } from 'node:fs'
import { lstat, mkdir, rename, rm, stat } from 'node:fs/promises'
import path from 'node:path'
import { Transform, type Readable, type Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { makeFolder } from '../util/make-folder.js'
import { spawnProgram } from '../util/spawn.js'
import { unpackTar } from '../util/tar.js'
import { readText } from './read-text.js'
import type { SandboxHandle } from './sandbox.js'

/** What was copied. */
export interface CopyResult {
  /** Where it lies now, host path or path in the sandbox. */
  target: string
  bytes: number
  /** Special files that were left out. */
  skipped: string[]
}

/** How a copy is watched. */
export interface CopyOptions {
  /** Told the bytes moved so far, archives included. */
  onProgress?: (bytes: number) => void
}

/** Prints kind, permission bits, and the path with links followed. */
const LOOK = 'p=$(readlink -f "$1") || p=$1; k=missing; [ -e "$p" ] && k=other; [ -f "$p" ] && k=file; [ -d "$p" ] && k=folder; '
  + 'm=644; [ -x "$p" ] && m=755; printf "%s %s %s" "$k" "$m" "$p"'
const UNPACK = 'mkdir -p "$1" && exec tar -xf - -C "$1"'
const WORKSPACE = '/workspace'

/** Copies a file or folder of the host into a sandbox. */
export async function copyIn(sandbox: SandboxHandle, source: string, target: string, options: CopyOptions = {}): Promise<CopyResult> {
  const found = await stat(source).catch((cause: unknown) => {
    throw new Kosa8Error('USAGE', `there is no file or folder ${source}`, { cause })
  })
  const wanted = absolute(target)
  const isInside = target.endsWith('/') || (await look(sandbox, wanted)).kind === 'folder'
  const place = isInside ? path.posix.join(wanted, path.basename(path.resolve(source))) : wanted
  const meter = new Meter(options.onProgress)
  if (found.isDirectory()) await packInto(sandbox, source, place, meter)
  else await sandbox.writeFile((await look(sandbox, place)).path, through(createReadStream(source), meter), found.mode & 0o777)
  return { target: place, bytes: meter.bytes, skipped: [] }
}

/** Copies a file or folder of a sandbox to the host. Files are replaced, folders never. */
export async function copyOut(sandbox: SandboxHandle, source: string, target: string, options: CopyOptions = {}): Promise<CopyResult> {
  const found = await look(sandbox, absolute(source))
  if (found.kind !== 'file' && found.kind !== 'folder') {
    throw new Kosa8Error('USAGE', `sandbox ${sandbox.name} has no file or folder ${absolute(source)}`)
  }
  const wanted = path.resolve(target)
  const isInside = target.endsWith('/') || await isFolder(wanted)
  const place = isInside ? path.join(wanted, path.posix.basename(absolute(source)) || sandbox.name) : wanted
  if (found.kind === 'folder' && await exists(place)) throw new Kosa8Error('USAGE', `${place} is there already`, { hint: 'name another target, or remove it first' })
  await makeFolder(path.dirname(place))
  const temporary = path.join(path.dirname(place), `.kosa8-copy-${randomUUID()}`)
  const meter = new Meter(options.onProgress)
  try {
    const skipped = found.kind === 'folder' ? await unpackFrom(sandbox, found.path, temporary, meter) : []
    if (found.kind === 'file') await pipeline(await sandbox.readFile(found.path), meter, createWriteStream(temporary, { flags: 'wx', mode: found.mode }))
    await rename(temporary, place)
    return { target: place, bytes: meter.bytes, skipped }
  } finally {
    await rm(temporary, { recursive: true, force: true })
  }
}

interface Found { kind: string; mode: number; path: string }

async function look(sandbox: SandboxHandle, place: string): Promise<Found> {
  const { stdout, exitCode, stderr } = await sandbox.exec(['sh', '-c', LOOK, 'sh', place])
  const match = /^(\w+) (\d+) ([^]*)$/.exec(stdout)
  if (match !== null && exitCode === 0) return { kind: match[1] as string, mode: Number.parseInt(match[2] as string, 8), path: match[3] as string }
  throw new Kosa8Error('GUEST_COMMAND_FAILED', `looking at ${place} in ${sandbox.name} failed: ${stderr.trim()}`)
}

async function packInto(sandbox: SandboxHandle, source: string, place: string, meter: Meter): Promise<void> {
  const process = await sandbox.spawn({ argv: ['sh', '-c', UNPACK, 'sh', place], stdin: true })
  process.stdout.resume()
  const reason = readText(process.stderr)
  // Not before there is somebody to read it: what a child prints and nobody reads is dropped at its end.
  const packer = spawnProgram('tar', ['-C', source, '--owner=0', '--group=0', '--numeric-owner', '-cf', '-', '.'], { stdio: ['ignore', 'pipe', 'pipe'] })
  const complaint = readText(packer.stderr as Readable)
  const packed = new Promise<number | null>((resolve, reject) => { packer.once('error', reject); packer.once('close', resolve) })
  packed.catch(() => undefined) // told below, unless unpacking has failed before
  const sent = pipeline(packer.stdout as Readable, meter, process.stdin as Writable).catch(() => undefined)
  try {
    const exit = await process.exited
    if (exit.code !== 0) throw new Kosa8Error('GUEST_COMMAND_FAILED', `unpacking to ${place} in ${sandbox.name} failed: ${(await reason).trim()}`)
    if (await packed !== 0) throw new Kosa8Error('INTERNAL', `packing ${source} failed: ${(await complaint).trim()}`)
  } finally {
    packer.kill()
    await sent
  }
}

async function unpackFrom(sandbox: SandboxHandle, source: string, temporary: string, meter: Meter): Promise<string[]> {
  await mkdir(temporary)
  const process = await sandbox.spawn({ argv: ['tar', '-C', source, '-cf', '-', '.'] })
  const reason = readText(process.stderr)
  try {
    const [{ skipped }, exit] = await Promise.all([unpackTar(through(process.stdout, meter), temporary), process.exited])
    if (exit.code !== 0) throw new Kosa8Error('GUEST_COMMAND_FAILED', `packing ${source} in ${sandbox.name} failed: ${(await reason).trim()}`)
    return skipped
  } catch (error) {
    process.close()
    throw error
  }
}

function absolute(place: string): string {
  return path.posix.resolve(WORKSPACE, place)
}

async function isFolder(place: string): Promise<boolean> {
  return stat(place).then((found) => found.isDirectory(), () => false)
}

async function exists(place: string): Promise<boolean> {
  return lstat(place).then(() => true, () => false)
}

/** The meter as a source: it ends as `source` ends, also in failure. */
function through(source: Readable, meter: Meter): Readable {
  pipeline(source, meter).catch(() => undefined)
  return meter
}

/** Counts what passes. */
class Meter extends Transform {
  bytes = 0

  constructor(private readonly onProgress: (bytes: number) => void = () => undefined) {
    super()
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: (error: null, chunk: Buffer) => void): void {
    this.bytes += chunk.length
    this.onProgress(this.bytes)
    done(null, chunk)
  }
}
