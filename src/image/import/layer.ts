/**
 * Reading one layer: decompressed, entry by entry, and checked against its digests at its end.
 *
 * Owns: that nobody takes a layer for read whose bytes are not those the image names. Called by the steps of an
 * import, twice for each layer: to see which files count, and to take their content.
 */
import { createHash, type Hash } from 'node:crypto'
import { Kosa8Error } from '../../errors/kosa8-error.js'
import { TarReader, type TarEntry } from '../../util/tar-reader.js'
import type { ImageArchive } from './archive.js'
import { decompress, detectCompression } from './decompress.js'
import type { ImageLayer } from './image-manifest.js'
import { LIMITS, refuse, refuseTooMuch } from './refuse.js'

/** Bytes that all layers together may still unpack to. */
export interface UnpackBudget { leftBytes: number }

/** What reading a layer needs. */
export interface LayerReading {
  archive: ImageArchive
  layer: ImageLayer
  /** Of the layer among the image's, from 1; for messages. */
  number: number
  budget: UnpackBudget
  signal: AbortSignal | undefined
  /** Called for each entry, with its number in the layer; `content` may be read once, now. */
  onEntry: (entry: TarEntry, index: number, content: () => AsyncIterable<Buffer>) => void | Promise<void>
}

/** @throws Kosa8Error IMAGE_ARCHIVE_INVALID when it is damaged or not what its digests say; CANCELLED. */
export async function readLayer({ archive, layer, number, budget, signal, onEntry }: LayerReading): Promise<void> {
  const blob = new DigestCheck(layer.digest, `layer ${number}`)
  const unpacked = new DigestCheck(layer.contentDigest, `the content of layer ${number}`)
  const { compression, content } = await detectCompression(blob.watch(archive.read(layer.name)))
  const plain = compression === null ? content : decompress(content, compression)
  const bounded = unpacked.watch(spend(plain, budget, signal))
  const reader = new TarReader(bounded, { encoding: 'latin1', refuse: (why) => refuse(`layer ${number}: ${why}`) })
  try {
    for (let entry = await reader.next(), index = 0; entry !== null; entry = await reader.next(), index += 1) {
      const given = onEntry(entry, index, () => reader.content())
      if (given !== undefined) await given
    }
    await reader.drain()
  } finally {
    await bounded.return(undefined)
  }
  unpacked.verify()
  blob.verify()
}

async function* spend(source: AsyncIterable<Buffer>, budget: UnpackBudget, signal: AbortSignal | undefined): AsyncGenerator<Buffer> {
  for await (const chunk of source) {
    if (signal?.aborted === true) throw new Kosa8Error('CANCELLED', 'the import was cancelled')
    budget.leftBytes -= chunk.length
    if (budget.leftBytes < 0) throw refuseTooMuch('its layers unpack to too much', LIMITS.unpackedBytes)
    yield chunk
  }
}

/** Hashes what passes by. */
class DigestCheck {
  private readonly hash: Hash | null

  constructor(private readonly digest: string | null, private readonly what: string) {
    this.hash = digest === null ? null : createHash(digest.split(':')[0] as string)
  }

  async* watch(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    for await (const chunk of source) {
      this.hash?.update(chunk)
      yield chunk
    }
  }

  verify(): void {
    const found = this.hash === null ? null : `${this.digest?.split(':')[0]}:${this.hash.digest('hex')}`
    if (found !== this.digest) throw refuse(`${this.what} is not what its digest says`)
  }
}
