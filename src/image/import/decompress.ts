/**
 * Undoing gzip and zstd, told apart by their first bytes: what a document says about a blob need not be true.
 *
 * Owns: both formats. zstd is the program's, as Node has it only in newer versions. Used by this folder only.
 */
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { createGunzip } from 'node:zlib'
import { Kosa8Error } from '../../errors/kosa8-error.js'
import { spawnProgram } from '../../util/spawn.js'
import { refuse } from './refuse.js'

export type Compression = 'gzip' | 'zstd'

const MAGIC: [Compression | 'xz' | 'bzip2', Buffer][] = [
  ['gzip', Buffer.from([0x1f, 0x8b])],
  ['zstd', Buffer.from([0x28, 0xb5, 0x2f, 0xfd])],
  ['xz', Buffer.from([0xfd, 0x37, 0x7a, 0x58, 0x5a])],
  ['bzip2', Buffer.from('BZh')],
]
const MAGIC_BYTES_MAX = 5

/**
 * Looks at the first bytes of a stream. @returns how it is compressed (null: not at all) and the whole stream.
 * @throws IMAGE_ARCHIVE_INVALID for a compression that is not read.
 */
export async function detectCompression(source: AsyncIterable<Buffer>): Promise<{ compression: Compression | null; content: AsyncIterable<Buffer> }> {
  const iterator = source[Symbol.asyncIterator]()
  let head: Buffer = Buffer.alloc(0)
  while (head.length < MAGIC_BYTES_MAX) {
    const next = await iterator.next()
    if (next.done === true) break
    head = Buffer.concat([head, next.value])
  }
  const found = MAGIC.find(([, magic]) => head.subarray(0, magic.length).equals(magic))?.[0] ?? null
  if (found === 'xz' || found === 'bzip2') throw refuse(`a part of it is compressed with ${found}; gzip, zstd and no compression are read`)
  return { compression: found, content: continueWith(head, iterator) }
}

async function* continueWith(head: Buffer, iterator: AsyncIterator<Buffer>): AsyncGenerator<Buffer> {
  try {
    if (head.length > 0) yield head
    for (let next = await iterator.next(); next.done !== true; next = await iterator.next()) yield next.value
  } finally {
    await iterator.return?.()
  }
}

/** The content of a compressed stream. @throws IMAGE_ARCHIVE_INVALID when it is damaged. */
export function decompress(source: AsyncIterable<Buffer>, compression: Compression): AsyncGenerator<Buffer> {
  return compression === 'gzip' ? gunzip(source) : unzstd(source)
}

async function* gunzip(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const gunzipper = createGunzip({ chunkSize: 256 * 1024 })
  const fed = pipeline(Readable.from(source, { objectMode: false }), gunzipper)
  fed.catch(() => undefined)
  try {
    yield* gunzipper as AsyncIterable<Buffer>
    await fed
  } catch (error) {
    throw describeDamage(error, 'gzip')
  } finally {
    gunzipper.destroy()
  }
}

async function* unzstd(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const child = spawnProgram('zstd', ['-dcq'], { stdio: ['pipe', 'pipe', 'ignore'] })
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', resolve)
  })
  ended.catch(() => undefined)
  const fed = pipeline(Readable.from(source, { objectMode: false }), child.stdin!)
  fed.catch(() => undefined)
  try {
    yield* child.stdout as AsyncIterable<Buffer>
    if (await ended !== 0) throw new Error('zstd refuses it')
    await fed
  } catch (error) {
    throw describeDamage(await fed.then(() => error, (reason: unknown) => Kosa8Error.isInstance(reason) ? reason : error), 'zstd')
  } finally {
    child.kill('SIGKILL')
  }
}

/** What went wrong while reading the source stays what it is. */
function describeDamage(error: unknown, compression: Compression): unknown {
  if (Kosa8Error.isInstance(error)) return error
  return refuse(`a part of it is damaged (${compression}: ${error instanceof Error ? error.message : String(error)})`, error)
}
