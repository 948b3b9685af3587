/**
 * Reading tar archives whose writer is not trusted.
 *
 * Owns: the formats ustar, GNU and pax as far as names, links and sizes go, every length bounded, and unpacking
 * into a folder nothing leads out of: no `..`, no special files, links made only after everything else.
 */
import { createWriteStream } from 'node:fs'
import { link, mkdir, symlink } from 'node:fs/promises'
import path from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { Kosa8Error } from '../errors/kosa8-error.js'

const BLOCK_BYTES = 512
const NAME_BYTES_MAX = 64 * 1024
const ENTRIES_MAX = 2_000_000

/** What came of an archive. */
export interface Unpacked {
  files: number
  sizeBytes: number
  /** Devices, pipes and sockets, which are left out. */
  skipped: string[]
}

interface Entry {
  type: string
  name: string
  linkName: string
  mode: number
  sizeBytes: number
}

/**
 * Unpacks an archive into `folder`, which is empty and nobody else's.
 * @throws Kosa8Error GUEST_PROTOCOL when it is none, or leads out of the folder.
 */
export async function unpackTar(archive: Readable, folder: string): Promise<Unpacked> {
  const reader = new ByteReader(archive)
  const unpacked: Unpacked = { files: 0, sizeBytes: 0, skipped: [] }
  const links: Entry[] = []
  let count = 0
  for (let entry = await readEntry(reader); entry !== null; entry = await readEntry(reader)) {
    if ((count += 1) > ENTRIES_MAX) throw refuse('it has too many entries')
    if (entry.type === '2') links.push(entry)
    else await unpackEntry(entry, reader, folder, unpacked)
  }
  for (const { name, linkName } of links) {
    await mkdir(path.dirname(placeOf(folder, name)), { recursive: true })
    await symlink(linkName, placeOf(folder, name))
  }
  for await (const rest of reader.rest()) void rest // what the writer pads with
  return unpacked
}

async function unpackEntry(entry: Entry, reader: ByteReader, folder: string, unpacked: Unpacked): Promise<void> {
  const place = placeOf(folder, entry.name)
  if (entry.type === '5') {
    await mkdir(place, { recursive: true, mode: (entry.mode & 0o777) | 0o700 })
    return
  }
  if (entry.type !== '0' && entry.type !== '1') {
    unpacked.skipped.push(entry.name)
    for await (const dropped of reader.content(entry.sizeBytes)) void dropped
    return
  }
  await mkdir(path.dirname(place), { recursive: true })
  if (entry.type === '1') {
    await link(placeOf(folder, entry.linkName), place)
    return
  }
  const file = createWriteStream(place, { flags: 'wx', mode: entry.mode & 0o777 })
  await pipeline(Readable.from(reader.content(entry.sizeBytes), { objectMode: false }), file)
  unpacked.files += 1
  unpacked.sizeBytes += entry.sizeBytes
}

/** Nothing but real folders made by us lies below `folder` while files are written. */
function placeOf(folder: string, name: string): string {
  const parts = name.split('/').filter((part) => part !== '' && part !== '.')
  if (parts.includes('..') || name.includes('\0')) throw refuse(`it names ${JSON.stringify(name)}`)
  return path.join(folder, ...parts)
}

/** The next entry with its long names; null at the end of the archive. */
async function readEntry(reader: ByteReader): Promise<Entry | null> {
  const long: Partial<Entry> = {}
  for (;;) {
    const header = await reader.take(BLOCK_BYTES)
    if (header === null || header.every((byte) => byte === 0)) return null
    const entry = parseHeader(header)
    if (entry.type === 'L') long.name = textOf(await takeContent(reader, entry))
    else if (entry.type === 'K') long.linkName = textOf(await takeContent(reader, entry))
    else if (entry.type === 'x') Object.assign(long, parsePax(await takeContent(reader, entry)))
    else if (entry.type === 'g') await takeContent(reader, entry)
    else return { ...entry, ...long }
  }
}

async function takeContent(reader: ByteReader, { sizeBytes }: Entry): Promise<Buffer> {
  if (sizeBytes > NAME_BYTES_MAX) throw refuse('a name in it is too long')
  const chunks: Buffer[] = []
  for await (const chunk of reader.content(sizeBytes)) chunks.push(chunk)
  return Buffer.concat(chunks)
}

function parseHeader(header: Buffer): Entry {
  const sum = header.reduce((total, byte, at) => total + (at >= 148 && at < 156 ? 0x20 : byte), 0)
  if (sum !== numberOf(header.subarray(148, 156))) throw refuse('a header in it is damaged')
  const isUstar = header.toString('latin1', 257, 262) === 'ustar'
  const prefix = isUstar && header[262] === 0 ? textOf(header.subarray(345, 500)) : ''
  const name = textOf(header.subarray(0, 100))
  const type = header[156] === 0 || header[156] === 0x37 ? '0' : String.fromCharCode(header[156] as number)
  return {
    type, name: prefix === '' ? name : `${prefix}/${name}`, linkName: textOf(header.subarray(157, 257)),
    mode: numberOf(header.subarray(100, 108)), sizeBytes: type === '1' || type === '2' ? 0 : numberOf(header.subarray(124, 136)),
  }
}

/** Octal text, or big-endian binary where the first bit is set. */
function numberOf(field: Buffer): number {
  const first = field[0] as number
  const value = (first & 0x80) === 0
    ? Number.parseInt(field.toString('latin1').replace(/[\0 ]+$/, '').trim() || '0', 8)
    : field.subarray(1).reduce((total, byte) => total * 256 + byte, first & 0x7f)
  if (!Number.isSafeInteger(value) || value < 0) throw refuse('a number in it is impossible')
  return value
}

function parsePax(content: Buffer): Partial<Entry> {
  const found: Partial<Entry> = {}
  for (let at = 0; at < content.length;) {
    const space = content.indexOf(0x20, at)
    const length = Number(content.toString('latin1', at, space))
    if (space < 0 || !Number.isSafeInteger(length) || length < 4) throw refuse('an extended header in it is damaged')
    const [, key, value] = /^([^=]*)=([^]*)\n$/.exec(content.toString('utf8', space + 1, at + length)) ?? []
    if (key === 'path') found.name = value as string
    if (key === 'linkpath') found.linkName = value as string
    if (key === 'size') found.sizeBytes = Number(value)
    at += length
  }
  if (found.sizeBytes !== undefined && !(Number.isSafeInteger(found.sizeBytes) && found.sizeBytes >= 0)) throw refuse('a size in it is impossible')
  return found
}

function textOf(field: Buffer): string {
  const end = field.indexOf(0)
  return field.toString('utf8', 0, end < 0 ? field.length : end)
}

function refuse(why: string): Kosa8Error {
  return new Kosa8Error('GUEST_PROTOCOL', `the archive from the sandbox is refused: ${why}`)
}

/** Bytes of a stream in the pieces a reader asks for. */
class ByteReader {
  private readonly source: AsyncIterator<Buffer>
  private pending: Buffer = Buffer.alloc(0)

  constructor(stream: Readable) {
    this.source = stream[Symbol.asyncIterator]() as AsyncIterator<Buffer>
  }

  /** `count` bytes; null at the end of the stream. */
  async take(count: number): Promise<Buffer | null> {
    while (this.pending.length < count) {
      const next = await this.source.next()
      if (next.done === true) {
        if (this.pending.length === 0) return null
        throw refuse('it breaks off')
      }
      this.pending = Buffer.concat([this.pending, next.value])
    }
    const taken = this.pending.subarray(0, count)
    this.pending = this.pending.subarray(count)
    return taken
  }

  /** The content of an entry; what pads it is dropped. */
  async* content(sizeBytes: number): AsyncGenerator<Buffer> {
    for (let left = sizeBytes; left > 0;) {
      if (this.pending.length === 0) {
        const next = await this.source.next()
        if (next.done === true) throw refuse('it breaks off')
        this.pending = next.value
      }
      const chunk = this.pending.subarray(0, left)
      this.pending = this.pending.subarray(chunk.length)
      left -= chunk.length
      yield chunk
    }
    await this.take((BLOCK_BYTES - sizeBytes % BLOCK_BYTES) % BLOCK_BYTES)
  }

  async* rest(): AsyncGenerator<Buffer> {
    for (let next = await this.source.next(); next.done !== true; next = await this.source.next()) yield next.value
  }
}
