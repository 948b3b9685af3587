/**
 * The tree as one plain tar archive, from which the root disk is made, and what such an archive cannot carry to it.
 *
 * Owns: what that archive may hold, so that unpacking it can do no harm: every path once and without `..`, below
 * folders that the archive itself makes first; links only once everything else is written; no devices. Reads each layer
 * a second time for the content of its files. Called by `import-image.ts`.
 */
import { once } from 'node:events'
import { createWriteStream, type WriteStream } from 'node:fs'
import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { finished } from 'node:stream/promises'
import type { ContainerImage } from './image-manifest.js'
import type { ImageArchive } from './archive.js'
import { readLayer } from './layer.js'
import { LIMITS, printable, refuseTooMuch } from './refuse.js'
import type { Attributes, Folder, Leaf, LayerTree } from './tree.js'

const BLOCK_BYTES = 512
const PLAIN: Attributes = { mode: 0o644, uid: 0, gid: 0, mtimeSeconds: 0, capability: null }
/** What an ordinary user's mke2fs needs of a file to copy it. */
const OWNER_ACCESS = 0o600
/** Paths that are the same words to debugfs. */
const PLAIN_PATH = /^[\w./+@:=,-]+$/
/** Largest number that fits into the octal digits of a field of that many bytes. */
const octalMax = (fieldBytes: number): number => 8 ** (fieldBytes - 1) - 1
/** What the disk allots in. */
const DISK_BLOCK_BYTES = 4096
/** Buffered before we wait for the disk. */
const BUFFER_BYTES = 4 * 1024 * 1024

/** Everything below the root, in the order in which it is written. */
export interface TreeListing {
  folders: { path: string; folder: Folder }[]
  /** Every object once, with all its names. */
  leaves: Map<Leaf, string[]>
  /** Devices, which are left out. */
  devices: number
  /** Bytes of the disk that the files take. */
  diskBytes: number
  /** Folders and objects. */
  inodes: number
}

/** @throws IMAGE_ARCHIVE_INVALID when a file has more names than the disk allows. */
export function listTree(tree: LayerTree): TreeListing {
  const listing: TreeListing = { folders: [], leaves: new Map(), devices: 0, diskBytes: 0, inodes: 0 }
  const waiting: { path: string; folder: Folder }[] = [{ path: './', folder: tree.root }]
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    listing.folders.push(next)
    listing.diskBytes += DISK_BLOCK_BYTES
    for (const [name, { node }] of next.folder.names) {
      const place = `${next.path}${name}`
      if (place.length >= LIMITS.pathBytes) throw refuseTooMuch(`the path ${printable(place)} is too long`, LIMITS.pathBytes)
      if (node.kind === 'folder') waiting.push({ path: `${place}/`, folder: node })
      else if (node.kind === 'device') listing.devices += 1
      else addName(listing, node, place)
    }
  }
  listing.inodes = listing.folders.length + listing.leaves.size
  return listing
}

function addName(listing: TreeListing, leaf: Leaf, path: string): void {
  const names = listing.leaves.get(leaf)
  if (names === undefined) {
    listing.leaves.set(leaf, [path])
    if (leaf.kind === 'file') listing.diskBytes += Math.ceil(leaf.sizeBytes / DISK_BLOCK_BYTES) * DISK_BLOCK_BYTES
    return
  }
  names.push(path)
  if (names.length > LIMITS.hardLinks) throw refuseTooMuch(`${printable(path)} has too many names`, LIMITS.hardLinks)
}

/** Writes the archive as `file`. */
export async function writeRootArchive(
  file: string, listing: TreeListing, source: { archive: ImageArchive; image: ContainerImage; signal: AbortSignal | undefined },
): Promise<void> {
  const stream = createWriteStream(file, { flags: 'wx', mode: 0o600, highWaterMark: BUFFER_BYTES })
  const ended = finished(stream)
  ended.catch(() => undefined)
  try {
    const writer = new ArchiveWriter(stream, ended)
    for (const { path, folder } of listing.folders) await writer.put('5', path, folder.attributes)
    await writeFiles(writer, listing, source)
    for (const [leaf, names] of listing.leaves) {
      if (leaf.kind === 'file') for (const path of names.slice(1)) await writer.put('1', path, leaf.attributes, { linkName: names[0] as string })
    }
    for (const [leaf, names] of listing.leaves) {
      if (leaf.kind === 'pipe') for (const path of names) await writer.put('6', path, leaf.attributes)
      if (leaf.kind === 'symlink') for (const path of names) await writer.put('2', path, leaf.attributes, { linkName: leaf.target })
    }
    await writer.write(Buffer.alloc(2 * BLOCK_BYTES))
    stream.end()
    await ended
  } finally {
    stream.destroy()
  }
}

type FileLeaf = Leaf & { kind: 'file' }

/**
 * Writes what is applied after unpacking: `modes/MODE`, names that get a mode which shuts their owner out, and
 * `capabilities`, commands for debugfs, which sets them in the finished disk whoever runs it.
 * @returns how many capabilities are left out, for names that debugfs could take for something else
 */
export async function writeAfterthoughts(folder: string, listing: TreeListing): Promise<number> {
  const modes = new Map<string, string[]>()
  const commands: string[] = []
  let leftOut = 0
  for (const [leaf, names] of listing.leaves) {
    if (leaf.kind !== 'file') continue
    const name = names[0] as string
    const { mode, capability } = leaf.attributes
    if ((mode & OWNER_ACCESS) !== OWNER_ACCESS) modes.set(mode.toString(8), [...modes.get(mode.toString(8)) ?? [], name])
    if (capability === null) continue
    if (!PLAIN_PATH.test(name)) leftOut += 1
    else commands.push(`ea_set -f capability-${capability.toString('hex')} ${name.slice(1)} security.capability`)
    await writeFile(path.join(folder, `capability-${capability.toString('hex')}`), capability)
  }
  await mkdir(path.join(folder, 'modes'))
  for (const [mode, names] of modes) await writeFile(path.join(folder, 'modes', mode), names.map((name) => `${name}\0`).join(''), 'latin1')
  if (commands.length > 0) await writeFile(path.join(folder, 'capabilities'), commands.map((line) => `${line}\n`).join(''))
  return leftOut
}

async function writeFiles(
  writer: ArchiveWriter, listing: TreeListing, { archive, image, signal }: Parameters<typeof writeRootArchive>[2],
): Promise<void> {
  const wanted = image.layers.map(() => new Map<number, [FileLeaf, string]>())
  for (const [leaf, names] of listing.leaves) {
    if (leaf.kind !== 'file') continue
    if ('bytes' in leaf.content) await writer.putFile(names[0] as string, leaf, [leaf.content.bytes])
    else wanted[leaf.content.layer - 1]?.set(leaf.content.index, [leaf, names[0] as string])
  }
  const budget = { leftBytes: LIMITS.unpackedBytes }
  for (const [at, layer] of image.layers.entries()) {
    const files = wanted[at] as Map<number, [FileLeaf, string]>
    if (files.size === 0) continue
    await readLayer({
      archive, layer, number: at + 1, budget, signal,
      onEntry: (_entry, index, content) => {
        const file = files.get(index)
        return file === undefined ? undefined : writer.putFile(file[1], file[0], content())
      },
    })
  }
}

/** Writes entries in GNU's format, which takes names byte for byte. */
class ArchiveWriter {
  constructor(private readonly stream: WriteStream, private readonly ended: Promise<void>) {}

  /** An entry; `sizeBytes` of content have to follow. */
  async put(type: string, path: string, attributes: Attributes, { linkName = '', sizeBytes = 0 } = {}): Promise<void> {
    if (path.length > 100) await this.putText('L', Buffer.from(`${path}\0`, 'latin1'))
    if (linkName.length > 100) await this.putText('K', Buffer.from(`${linkName}\0`, 'latin1'))
    await this.write(header(type, path, attributes, linkName, sizeBytes))
  }

  async putFile(path: string, file: FileLeaf, content: AsyncIterable<Buffer> | Iterable<Buffer>): Promise<void> {
    await this.put('0', path, { ...file.attributes, mode: file.attributes.mode | OWNER_ACCESS }, { sizeBytes: file.sizeBytes })
    for await (const chunk of content) await this.write(chunk)
    await this.write(padding(file.sizeBytes))
  }

  async write(bytes: Buffer): Promise<void> {
    if (!this.stream.write(bytes)) await Promise.race([once(this.stream, 'drain'), this.ended])
  }

  private async putText(type: string, text: Buffer): Promise<void> {
    await this.write(header(type, '././@LongLink', PLAIN, '', text.length))
    await this.write(Buffer.concat([text, padding(text.length)]))
  }
}

function header(type: string, path: string, { mode, uid, gid, mtimeSeconds }: Attributes, linkName: string, sizeBytes: number): Buffer {
  const block = Buffer.alloc(BLOCK_BYTES)
  block.write(path, 0, 100, 'latin1')
  writeNumber(block, 100, 8, mode)
  writeNumber(block, 108, 8, uid)
  writeNumber(block, 116, 8, gid)
  writeNumber(block, 124, 12, sizeBytes)
  writeNumber(block, 136, 12, mtimeSeconds)
  block.write('        ', 148)
  block.write(type, 156)
  block.write(linkName, 157, 100, 'latin1')
  block.write('ustar  \0', 257)
  const sum = block.reduce((total, byte) => total + byte, 0)
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148)
  return block
}

/** Octal, or binary where that does not fit. */
function writeNumber(block: Buffer, at: number, fieldBytes: number, value: number): void {
  if (value <= octalMax(fieldBytes)) {
    block.write(`${value.toString(8).padStart(fieldBytes - 1, '0')}\0`, at)
    return
  }
  block.writeUIntBE(value, at + fieldBytes - 6, 6)
  block[at] = 0x80
}

function padding(sizeBytes: number): Buffer {
  return Buffer.alloc((BLOCK_BYTES - sizeBytes % BLOCK_BYTES) % BLOCK_BYTES)
}
