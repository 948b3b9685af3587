/**
 * Reading the entries of a tar archive whose writer is not trusted.
 *
 * Owns: the formats ustar, GNU and pax as far as names, links, owners, times, sizes and extended attributes go,
 * with every length bounded. Does not own: what an entry may do, which the callers decide (`tar.ts` for files out
 * of a sandbox, `image/import` for container images). Nothing is written here.
 */
const BLOCK_BYTES = 512
/** Longest extended header or long name; more is no name. */
const HEADER_BYTES_MAX = 1024 * 1024
const XATTR_PREFIX = 'SCHILY.xattr.'
/** Extended attributes of one entry that are kept. */
const XATTRS_MAX = 64

/** Letters of the archive. */
const TYPES: Record<string, TarEntryType> = {
  0: 'file', 1: 'link', 2: 'symlink', 3: 'device', 4: 'device', 5: 'folder', 6: 'pipe', 7: 'file', S: 'sparse',
}
/** Types that have content; others have none, whatever size they claim. */
const WITH_CONTENT: TarEntryType[] = ['file', 'sparse', 'unknown']

/** What an entry is. */
export type TarEntryType = 'file' | 'link' | 'symlink' | 'device' | 'folder' | 'pipe' | 'sparse' | 'unknown'

/** One entry. Names are as the archive has them: absolute, with `..`, whatever. */
export interface TarEntry {
  type: TarEntryType
  name: string
  linkName: string
  /** Permission bits with setuid, setgid and sticky. */
  mode: number
  uid: number
  gid: number
  /** Whole seconds since 1970; 0 for what is older. */
  mtimeSeconds: number
  sizeBytes: number
  /** Values by name; binary. */
  xattrs: Map<string, Buffer>
}

/** How an archive is read. */
export interface TarRules {
  /** `latin1` keeps names byte for byte. */
  encoding: 'utf8' | 'latin1'
  /** The error for an archive that cannot be accepted; `why` goes on after "the archive: ". */
  refuse(why: string): Error
}

/** What extended headers and long names say about the entry behind them. */
type Overrides = Partial<Omit<TarEntry, 'xattrs'>> & { xattrs: Map<string, Buffer>; isSparse: boolean }

/** Reads an archive entry by entry; content that is not asked for is skipped. */
export class TarReader {
  private readonly bytes: ByteReader
  private leftBytes = 0
  private paddingBytes = 0

  constructor(archive: AsyncIterable<Buffer>, private readonly rules: TarRules) {
    this.bytes = new ByteReader(archive, rules)
  }

  /** Bytes of the archive that were read: where the content begins right after {@link next}. */
  get offset(): number {
    return this.bytes.offset
  }

  /** The next entry with its long names; null at the end of the archive. */
  async next(): Promise<TarEntry | null> {
    const overrides: Overrides = { xattrs: new Map(), isSparse: false }
    for (;;) {
      for await (const skipped of this.content()) void skipped
      const header = await this.bytes.take(BLOCK_BYTES)
      if (header === null || header.every((byte) => byte === 0)) return null
      const { letter, ...plain } = this.parseHeader(header)
      this.expectContent(plain.sizeBytes)
      if (letter === 'L') overrides.name = this.textOf(await this.takeContent())
      else if (letter === 'K') overrides.linkName = this.textOf(await this.takeContent())
      else if (letter === 'x') this.parsePax(await this.takeContent(), overrides)
      else if (letter !== 'g') return this.finish(plain, overrides)
    }
  }

  /** The content of the entry that was read last; nothing when it was read before. */
  async* content(): AsyncGenerator<Buffer> {
    while (this.leftBytes > 0) {
      const chunk = await this.bytes.takeSome(this.leftBytes)
      this.leftBytes -= chunk.length
      yield chunk
    }
    const padding = this.paddingBytes
    this.paddingBytes = 0
    await this.bytes.take(padding)
  }

  /** Reads what follows the end of the archive. */
  async drain(): Promise<void> {
    for await (const rest of this.bytes.rest()) void rest
  }

  private finish(plain: TarEntry, { isSparse, ...overrides }: Overrides): TarEntry {
    const entry = { ...plain, ...overrides, ...(isSparse ? { type: 'sparse' as const } : {}) }
    if (!WITH_CONTENT.includes(entry.type)) entry.sizeBytes = 0
    this.expectContent(entry.sizeBytes)
    if (entry.name.includes('\0') || entry.linkName.includes('\0')) throw this.rules.refuse('a name in it has a NUL character')
    return entry
  }

  private expectContent(sizeBytes: number): void {
    this.leftBytes = sizeBytes
    this.paddingBytes = (BLOCK_BYTES - sizeBytes % BLOCK_BYTES) % BLOCK_BYTES
  }

  private async takeContent(): Promise<Buffer> {
    if (this.leftBytes > HEADER_BYTES_MAX) throw this.rules.refuse(`a header in it has more than ${HEADER_BYTES_MAX} bytes`)
    const chunks: Buffer[] = []
    for await (const chunk of this.content()) chunks.push(chunk)
    return Buffer.concat(chunks)
  }

  private parseHeader(header: Buffer): TarEntry & { letter: string } {
    const sum = header.reduce((total, byte, at) => total + (at >= 148 && at < 156 ? 0x20 : byte), 0)
    if (sum !== Number.parseInt(header.toString('latin1', 148, 156).trim(), 8)) throw this.rules.refuse('a header in it is damaged')
    const isUstar = header.toString('latin1', 257, 262) === 'ustar'
    const prefix = isUstar && header[262] === 0 ? this.textOf(header.subarray(345, 500)) : ''
    const name = this.textOf(header.subarray(0, 100))
    const letter = header[156] === 0 ? '0' : String.fromCharCode(header[156] as number)
    const type = TYPES[letter] ?? 'unknown'
    return {
      letter, type, name: prefix === '' ? name : `${prefix}/${name}`, linkName: this.textOf(header.subarray(157, 257)),
      mode: this.numberOf(header.subarray(100, 108)) & 0o7777,
      uid: this.numberOf(header.subarray(108, 116)), gid: this.numberOf(header.subarray(116, 124)),
      mtimeSeconds: isNegative(header[136] as number) ? 0 : this.numberOf(header.subarray(136, 148)),
      sizeBytes: WITH_CONTENT.includes(type) ? this.numberOf(header.subarray(124, 136)) : 0,
      xattrs: new Map(),
    }
  }

  /** Records `<length> <key>=<value>\n`; values may be binary. */
  private parsePax(content: Buffer, found: Overrides): void {
    for (let at = 0; at < content.length;) {
      const space = content.indexOf(0x20, at)
      const length = Number(content.toString('latin1', at, Math.max(at, space)))
      const equals = content.indexOf(0x3d, space)
      const end = at + length - 1
      if (space < 0 || !Number.isSafeInteger(length) || equals < 0 || equals >= end || content[end] !== 0x0a) {
        throw this.rules.refuse('an extended header in it is damaged')
      }
      this.takePax(content.toString('latin1', space + 1, equals), content.subarray(equals + 1, end), found)
      at += length
    }
  }

  private takePax(key: string, value: Buffer, found: Overrides): void {
    if (key === 'path') found.name = value.toString(this.rules.encoding)
    else if (key === 'linkpath') found.linkName = value.toString(this.rules.encoding)
    else if (key === 'size') found.sizeBytes = this.decimalOf(value)
    else if (key === 'uid') found.uid = this.decimalOf(value)
    else if (key === 'gid') found.gid = this.decimalOf(value)
    else if (key === 'mtime') found.mtimeSeconds = Math.max(0, Math.floor(Number(value.toString('latin1')) || 0))
    else if (key.startsWith('GNU.sparse.')) found.isSparse = true
    else if (key.startsWith(XATTR_PREFIX) && found.xattrs.size < XATTRS_MAX) found.xattrs.set(key.slice(XATTR_PREFIX.length), Buffer.from(value))
  }

  private decimalOf(value: Buffer): number {
    const number = Number(value.toString('latin1'))
    if (!Number.isSafeInteger(number) || number < 0) throw this.rules.refuse('a number in it is impossible')
    return number
  }

  /** Octal text, or big-endian binary where the first bit is set. */
  private numberOf(field: Buffer): number {
    const first = field[0] as number
    const value = (first & 0x80) === 0
      ? Number.parseInt(field.toString('latin1').replace(/[\0 ]+$/, '').trim() || '0', 8)
      : field.subarray(1).reduce((total, byte) => total * 256 + byte, first & 0x7f)
    if (!Number.isSafeInteger(value) || value < 0) throw this.rules.refuse('a number in it is impossible')
    return value
  }

  private textOf(field: Buffer): string {
    const end = field.indexOf(0)
    return field.toString(this.rules.encoding, 0, end < 0 ? field.length : end)
  }
}

/** The first byte of a binary number below zero. */
function isNegative(first: number): boolean {
  return (first & 0xc0) === 0xc0
}

/** Bytes of a stream in the pieces a reader asks for. */
class ByteReader {
  offset = 0
  private readonly source: AsyncIterator<Buffer>
  private pending: Buffer = Buffer.alloc(0)

  constructor(stream: AsyncIterable<Buffer>, private readonly rules: TarRules) {
    this.source = stream[Symbol.asyncIterator]()
  }

  /** `count` bytes; null at the end of the stream. */
  async take(count: number): Promise<Buffer | null> {
    while (this.pending.length < count) {
      const next = await this.source.next()
      if (next.done === true) {
        if (this.pending.length === 0) return null
        throw this.rules.refuse('it breaks off')
      }
      this.pending = this.pending.length === 0 ? next.value : Buffer.concat([this.pending, next.value])
    }
    return this.cut(count)
  }

  /** At least one byte and at most `most`. */
  async takeSome(most: number): Promise<Buffer> {
    while (this.pending.length === 0) {
      const next = await this.source.next()
      if (next.done === true) throw this.rules.refuse('it breaks off')
      this.pending = next.value
    }
    return this.cut(Math.min(most, this.pending.length))
  }

  async* rest(): AsyncGenerator<Buffer> {
    for (let next = await this.source.next(); next.done !== true; next = await this.source.next()) yield next.value
  }

  private cut(count: number): Buffer {
    const taken = this.pending.subarray(0, count)
    this.pending = this.pending.subarray(count)
    this.offset += count
    return taken
  }
}
