/**
 * Files and folders between the host and a sandbox.
 *
 * Owns: what a target means (a folder that is there gets the source inside), and that a copy which fails leaves
 * nothing half made on the host. Folders travel as tar archives, written by the sandbox's own `tar` and the host's.
 */
import { randomUUID } from 'node:crypto'
import { createWriteStream } from 'node:fs'
import { lstat, mkdir, rename, rm, stat } from 'node:fs/promises'
import path from 'node:path'
import { Transform, type Readable, type Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { makeFolder } from '../util/make-folder.js'
import { openWithoutWaiting } from '../util/open-without-waiting.js'
import { unpackTar } from '../util/tar.js'
import { packFolder } from './pack-folder.js'
import { readText } from './read-text.js'
import type { SandboxHandle } from './sandbox.js'

/** What was copied. */
export interface CopyResult {
  /** Where it lies now, host path or path in the sandbox. */
  target: string
  bytes: number
  /** Named pipes, sockets and devices that were left out, by their place in the folder, e.g. `./run/socket`. */
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
  if (!found.isFile() && !found.isDirectory()) throw refuseSpecial(sandbox, source)
  const wanted = absolute(target)
  const isInside = target.endsWith('/') || (await look(sandbox, wanted)).kind === 'folder'
  const place = isInside ? path.posix.join(wanted, path.basename(path.resolve(source))) : wanted
  const meter = new Meter(options.onProgress)
  const skipped = found.isDirectory() ? await packInto(sandbox, source, place, meter) : []
  if (found.isFile()) await sendFile(sandbox, source, place, meter)
  return { target: place, bytes: meter.bytes, skipped }
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

async function sendFile(sandbox: SandboxHandle, source: string, place: string, meter: Meter): Promise<void> {
  const handle = await openWithoutWaiting(source).catch((error: unknown) => { throw unreadable(source, error) })
  try {
    const found = await handle.stat()
    if (!found.isFile()) throw refuseSpecial(sandbox, source)
    const target = (await look(sandbox, place)).path
    await sandbox.writeFile(target, through(handle.createReadStream({ autoClose: false }), meter), found.mode & 0o777)
  } catch (error) {
    throw Kosa8Error.isInstance(error) ? error : unreadable(source, error)
  } finally {
    await handle.close()
  }
}

function refuseSpecial({ name }: SandboxHandle, source: string): Kosa8Error {
  return new Kosa8Error('USAGE', `${source} is neither a file nor a folder`, {
    hint: `to copy what comes out of it: … | kosa8 exec ${name} -- sh -c 'cat > PATH'`,
  })
}

function unreadable(source: string, error: unknown): Kosa8Error {
  return new Kosa8Error('USAGE', `${source} cannot be read: ${(error as Error).message}`, { cause: error })
}

async function packInto(sandbox: SandboxHandle, source: string, place: string, meter: Meter): Promise<string[]> {
  const process = await sandbox.spawn({ argv: ['sh', '-c', UNPACK, 'sh', place], stdin: true })
  process.stdout.resume()
  const reason = readComplaint(process.stderr)
  // Not before there is somebody to read it: what a child prints and nobody reads is dropped at its end.
  const packed = packFolder(source)
  const sent = pipeline(packed.archive, meter, process.stdin as Writable).catch(() => undefined)
  try {
    const exit = await process.exited
    if (exit.code !== 0) throw new Kosa8Error('GUEST_COMMAND_FAILED', `unpacking to ${place} in ${sandbox.name} failed: ${await reason}`)
    return await packed.finished
  } finally {
    packed.stop()
    await sent
  }
}

async function unpackFrom(sandbox: SandboxHandle, source: string, temporary: string, meter: Meter): Promise<string[]> {
  await mkdir(temporary)
  const process = await sandbox.spawn({ argv: ['tar', '-C', source, '-cf', '-', '.'] })
  const reason = readComplaint(process.stderr)
  try {
    const [{ skipped }, exit] = await Promise.all([unpackTar(through(process.stdout, meter), temporary), process.exited])
    if (exit.code !== 0) throw new Kosa8Error('GUEST_COMMAND_FAILED', `packing ${source} in ${sandbox.name} failed: ${await reason}`)
    return skipped
  } catch (error) {
    process.close()
    throw error
  }
}

/** What a program says of its failure. Nothing where that breaks off: what broke it off is the failure then. */
function readComplaint(stream: Readable): Promise<string> {
  return readText(stream).then((text) => text.trim(), () => '')
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
