/**
 * The files of an image archive: of a tar archive (also compressed) or of a folder, read without unpacking it.
 *
 * Owns: finding a file by its name and reading its bytes. Names of an archive are only ever looked up, never used
 * as paths; in a folder no link is followed. Does not own: what the files mean (`image-manifest.ts`).
 */
import { createReadStream, createWriteStream, constants } from 'node:fs'
import { open, stat, type FileHandle } from 'node:fs/promises'
import path from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { TarReader } from '../../util/tar-reader.js'
import { decompress, detectCompression } from './decompress.js'
import { LIMITS, printable, refuse, refuseEmpty, refuseTooMuch } from './refuse.js'

/** Largest piece read at once. */
const CHUNK_BYTES = 1024 * 1024
/** Links in an archive that lead to one another. */
const LINK_HOPS_MAX = 8

/** Files by name, relative to the archive's top. */
export interface ImageArchive {
  /** How the user calls it. */
  file: string
  has(name: string): Promise<boolean>
  /** The bytes of one file. @throws IMAGE_ARCHIVE_INVALID when it is not there. */
  read(name: string): AsyncIterable<Buffer>
  close(): Promise<void>
}

/**
 * Opens an archive or a folder that `check-archive.ts` has looked at.
 * @param workFolder where a compressed archive is decompressed to
 * @throws Kosa8Error IMAGE_ARCHIVE_INVALID.
 */
export async function openArchive(file: string, workFolder: string, signal?: AbortSignal): Promise<ImageArchive> {
  const isFolder = (await stat(file)).isDirectory()
  return isFolder ? openFolder(file) : openTar(file, await plainFile(file, workFolder, signal), signal)
}

/** Reads a whole document of an archive, bounded. */
export async function readDocument(archive: ImageArchive, name: string): Promise<Buffer> {
  const chunks: Buffer[] = []
  let sizeBytes = 0
  for await (const chunk of archive.read(name)) {
    if ((sizeBytes += chunk.length) > LIMITS.documentBytes) throw refuseTooMuch(`${printable(name)} is too long`, LIMITS.documentBytes)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

/** The files of a folder. */
export function openFolder(folder: string): ImageArchive {
  const openFile = async (name: string): Promise<FileHandle | null> => {
    const handle = await open(path.join(folder, safeName(name)), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
      .catch(() => null)
    if (handle === null || (await handle.stat()).isFile()) return handle
    await handle.close()
    return null
  }
  return {
    file: folder,
    async has(name) {
      const handle = await openFile(name)
      await handle?.close()
      return handle !== null
    },
    async* read(name) {
      const handle = await openFile(name)
      if (handle === null) throw refuse(`it has no file ${printable(name)}`)
      yield* handle.createReadStream({ highWaterMark: CHUNK_BYTES }) as AsyncIterable<Buffer>
    },
    close: async () => undefined,
  }
}

/** Names come from documents of the archive. */
function safeName(name: string): string {
  if (!/^[\w.][\w.-]*(\/[\w.][\w.-]*)*$/.test(name) || name.split('/').some((part) => part === '..' || part === '.')) {
    throw refuse(`it names a file ${printable(name)}`)
  }
  return name
}

/** The archive itself, or what it holds when it is compressed. */
async function plainFile(file: string, workFolder: string, signal: AbortSignal | undefined): Promise<string> {
  const source = createReadStream(file, { highWaterMark: CHUNK_BYTES })
  const { compression, content } = await detectCompression(source as AsyncIterable<Buffer>)
  if (compression === null) {
    source.destroy()
    return file
  }
  const target = path.join(workFolder, 'archive.tar')
  const bounded = boundBytes(decompress(content, compression), LIMITS.unpackedBytes)
  await pipeline(Readable.from(bounded, { objectMode: false }), createWriteStream(target, { flags: 'wx', mode: 0o600 }),
    signal === undefined ? {} : { signal })
  return target
}

async function* boundBytes(source: AsyncIterable<Buffer>, limit: number): AsyncGenerator<Buffer> {
  let total = 0
  for await (const chunk of source) {
    if ((total += chunk.length) > limit) throw refuseTooMuch('it unpacks to too much', limit)
    yield chunk
  }
}

type Place = { offset: number; sizeBytes: number } | { link: string }

async function openTar(file: string, plain: string, signal: AbortSignal | undefined): Promise<ImageArchive> {
  const places = await indexTar(plain, signal)
  const find = (name: string): { offset: number; sizeBytes: number } | null => {
    let wanted = name
    for (let hop = 0; hop < LINK_HOPS_MAX; hop += 1) {
      const place = places.get(wanted)
      if (place === undefined) return null
      if (!('link' in place)) return place
      wanted = place.link
    }
    return null
  }
  const handle = await open(plain, 'r')
  return {
    file,
    has: async (name) => find(name) !== null,
    async* read(name) {
      const place = find(name)
      if (place === null) throw refuse(`it has no file ${printable(name)}`)
      yield* readRange(handle, place)
    },
    close: () => handle.close(),
  }
}

/** Where each file of a tar archive lies. The last of two with the same name counts, as everywhere. */
async function indexTar(file: string, signal: AbortSignal | undefined): Promise<Map<string, Place>> {
  const stream = createReadStream(file, { highWaterMark: CHUNK_BYTES, signal })
  const reader = new TarReader(stream as AsyncIterable<Buffer>, { encoding: 'utf8', refuse })
  const places = new Map<string, Place>()
  try {
    for (let entry = await reader.next(), count = 1; entry !== null; entry = await reader.next(), count += 1) {
      if (count > LIMITS.archiveEntries) throw refuseTooMuch('it has too many files', LIMITS.archiveEntries)
      const name = path.posix.normalize(entry.name)
      if (entry.type === 'file') places.set(name, { offset: reader.offset, sizeBytes: entry.sizeBytes })
      // Old versions of docker save a layer that is there already as a link to it.
      if (entry.type === 'symlink') places.set(name, { link: path.posix.join(path.posix.dirname(name), entry.linkName) })
      if (entry.type === 'link') places.set(name, { link: path.posix.normalize(entry.linkName) })
    }
  } finally {
    stream.destroy()
  }
  if (places.size === 0) throw refuseEmpty()
  return places
}

async function* readRange(handle: FileHandle, { offset, sizeBytes }: { offset: number; sizeBytes: number }): AsyncGenerator<Buffer> {
  for (let at = 0; at < sizeBytes;) {
    const chunk = Buffer.allocUnsafe(Math.min(CHUNK_BYTES, sizeBytes - at))
    const { bytesRead } = await handle.read(chunk, 0, chunk.length, offset + at)
    if (bytesRead === 0) throw refuse('it breaks off')
    at += bytesRead
    yield chunk.subarray(0, bytesRead)
  }
}
