/**
 * Extents of a sparse file: which regions may hold data; everything outside them is zeros.
 *
 * Owns: merging, and the small binary form (pairs of little-endian u32: first page, page count).
 * Node offers no way to ask a file for its holes, so whoever writes a sparse file keeps this list.
 * Callers: the driver (copying guest memory) and the checkpoint store (hashing it).
 */

/** Bytes per page: the unit of guest memory and of every extent. */
export const PAGE_BYTES = 4096

/** A run of pages. */
export interface Extent {
  firstPage: number
  pageCount: number
}

/**
 * The union of extents in ascending order. Neighbours closer than `gapPages` are joined: that costs
 * reading a few zeros and keeps the list short.
 */
export function mergeExtents(extents: readonly Extent[], gapPages = 0): Extent[] {
  const merged: Extent[] = []
  for (const { firstPage, pageCount } of [...extents].sort((a, b) => a.firstPage - b.firstPage)) {
    const last = merged.at(-1)
    if (last !== undefined && firstPage <= last.firstPage + last.pageCount + gapPages) {
      last.pageCount = Math.max(last.pageCount, firstPage + pageCount - last.firstPage)
    } else if (pageCount > 0) {
      merged.push({ firstPage, pageCount })
    }
  }
  return merged
}

/** The binary form of a list of extents. */
export function encodeExtents(extents: readonly Extent[]): Buffer {
  const bytes = Buffer.alloc(extents.length * 8)
  extents.forEach(({ firstPage, pageCount }, index) => {
    bytes.writeUInt32LE(firstPage, index * 8)
    bytes.writeUInt32LE(pageCount, index * 8 + 4)
  })
  return bytes
}

/**
 * Reads the binary form.
 * @param pagesMax pages of the file the extents describe
 * @throws RangeError when the list is cut off, out of order or reaches beyond the file.
 */
export function decodeExtents(bytes: Buffer, pagesMax: number): Extent[] {
  if (bytes.length % 8 !== 0) throw new RangeError('the list of extents is cut off')
  const extents: Extent[] = []
  let nextPage = 0
  for (let offset = 0; offset < bytes.length; offset += 8) {
    const extent = { firstPage: bytes.readUInt32LE(offset), pageCount: bytes.readUInt32LE(offset + 4) }
    const end = extent.firstPage + extent.pageCount
    if (extent.firstPage < nextPage || extent.pageCount === 0 || end > pagesMax) {
      throw new RangeError(`extent ${offset / 8} is out of order or beyond the end`)
    }
    extents.push(extent)
    nextPage = end
  }
  return extents
}

/** Where the extents of a memory file are kept: beside it. */
export function extentsFileOf(memoryFile: string): string {
  return `${memoryFile}.extents`
}
