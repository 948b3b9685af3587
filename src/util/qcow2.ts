/**
 * The header of a qcow2 file: writing an empty overlay, and reading what an overlay lies on.
 *
 * Owns: the few fields of the format (version 3) that this takes. Reads a bounded part of the file
 * and follows no name it finds there. Callers: the driver (new overlays) and the checkpoint store
 * (which overlays are still needed).
 */
import { open, rm } from 'node:fs/promises'
import path from 'node:path'

const MAGIC = 0x514649fb
const CLUSTER_BITS = 16
const CLUSTER_BYTES = 1 << CLUSTER_BITS
const HEADER_BYTES = 104
const BACKING_FORMAT_EXTENSION = 0xe2792aca
/** The format's own limit for the name of a backing file. */
const BACKING_NAME_BYTES_MAX = 1023
/** Clusters of an empty overlay: header, refcount table, refcount block, L1 table. */
const EMPTY_CLUSTERS = 4
/** What one L1 table cluster can address; no disk of ours comes near it. */
const VIRTUAL_BYTES_MAX = (CLUSTER_BYTES / 8) * (CLUSTER_BYTES / 8) * CLUSTER_BYTES

/** What an overlay's header says. */
export interface OverlayHeader {
  /** Size of the disk the guest sees, bytes. */
  virtualBytes: number
  /** Name of the backing file as written there; null when it has none. */
  backingName: string | null
}

/** An empty overlay. */
export interface EmptyOverlay {
  virtualBytes: number
  /** Relative to the overlay's own folder. */
  backingName: string
  backingFormat: 'raw' | 'qcow2'
}

/** Name of the overlay in the same folder that this one reads through to; null where it lies on the root disk. @throws as {@link readOverlayHeader} */
export async function readLowerLayer(folder: string, name: string): Promise<string | null> {
  const { backingName } = await readOverlayHeader(path.join(folder, name))
  return backingName !== null && !backingName.includes('/') ? backingName : null
}

/**
 * Writes an empty overlay to `file`, which must not exist.
 * @throws RangeError for a name or size the format cannot hold; else the error of the file system.
 */
export async function createOverlay(file: string, overlay: EmptyOverlay): Promise<void> {
  const header = encodeHeader(overlay)
  const handle = await open(file, 'wx', 0o600)
  try {
    await handle.write(header, 0, header.length, 0)
    const refcountTable = Buffer.alloc(8)
    refcountTable.writeBigUInt64BE(BigInt(2 * CLUSTER_BYTES))
    await handle.write(refcountTable, 0, 8, CLUSTER_BYTES)
    const refcounts = Buffer.alloc(2 * EMPTY_CLUSTERS)
    for (let cluster = 0; cluster < EMPTY_CLUSTERS; cluster++) refcounts.writeUInt16BE(1, 2 * cluster)
    await handle.write(refcounts, 0, refcounts.length, 2 * CLUSTER_BYTES)
    await handle.truncate(EMPTY_CLUSTERS * CLUSTER_BYTES)
  } catch (error) {
    await rm(file, { force: true })
    throw error
  } finally {
    await handle.close()
  }
}

function encodeHeader({ virtualBytes, backingName, backingFormat }: EmptyOverlay): Buffer {
  const name = Buffer.from(backingName)
  if (name.length === 0 || name.length > BACKING_NAME_BYTES_MAX) throw new RangeError(`backing name of ${name.length} bytes`)
  if (virtualBytes <= 0 || virtualBytes > VIRTUAL_BYTES_MAX) throw new RangeError(`virtual size of ${virtualBytes} bytes`)
  const format = Buffer.from(backingFormat)
  const nameOffset = HEADER_BYTES + 8 + 8 + 8
  const header = Buffer.alloc(nameOffset + name.length)
  header.writeUInt32BE(MAGIC, 0)
  header.writeUInt32BE(3, 4)
  header.writeBigUInt64BE(BigInt(nameOffset), 8)
  header.writeUInt32BE(name.length, 16)
  header.writeUInt32BE(CLUSTER_BITS, 20)
  header.writeBigUInt64BE(BigInt(virtualBytes), 24)
  header.writeUInt32BE(Math.ceil(virtualBytes / (CLUSTER_BYTES * (CLUSTER_BYTES / 8))), 36)
  header.writeBigUInt64BE(BigInt(3 * CLUSTER_BYTES), 40)
  header.writeBigUInt64BE(BigInt(CLUSTER_BYTES), 48)
  header.writeUInt32BE(1, 56)
  header.writeUInt32BE(4, 96)
  header.writeUInt32BE(HEADER_BYTES, 100)
  header.writeUInt32BE(BACKING_FORMAT_EXTENSION, HEADER_BYTES)
  header.writeUInt32BE(format.length, HEADER_BYTES + 4)
  format.copy(header, HEADER_BYTES + 8)
  name.copy(header, nameOffset)
  return header
}

/**
 * Reads the header of an overlay.
 * @throws RangeError when the file is no qcow2 file or its header is cut off.
 */
export async function readOverlayHeader(file: string): Promise<OverlayHeader> {
  const handle = await open(file, 'r')
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(32), 0, 32, 0)
    if (bytesRead < 32 || buffer.readUInt32BE(0) !== MAGIC) throw new RangeError(`${file} is not a qcow2 file`)
    const nameOffset = buffer.readBigUInt64BE(8)
    const nameBytes = buffer.readUInt32BE(16)
    const virtualBytes = Number(buffer.readBigUInt64BE(24))
    if (nameOffset === 0n) return { virtualBytes, backingName: null }
    if (nameBytes > BACKING_NAME_BYTES_MAX || nameOffset > BigInt(CLUSTER_BYTES)) {
      throw new RangeError(`${file}: the name of the backing file is out of bounds`)
    }
    const name = await handle.read(Buffer.alloc(nameBytes), 0, nameBytes, Number(nameOffset))
    if (name.bytesRead < nameBytes) throw new RangeError(`${file} is cut off`)
    return { virtualBytes, backingName: name.buffer.toString('utf8') }
  } finally {
    await handle.close()
  }
}
