/** The one error for an archive that is not what it should be, and the limits of what is accepted. */
import { Kosa8Error } from '../../errors/kosa8-error.js'

const GIB = 1024 ** 3

/** Bounds of everything an archive can claim. Images of the field stay far below all of them. */
export const LIMITS = {
  /** Files in the archive itself: blobs and documents. */
  archiveEntries: 10_000,
  /** Of a manifest, an index or a configuration; registries accept no more. */
  documentBytes: 4 * 1024 * 1024,
  /** Manifests an index may lead to. */
  manifests: 1_000,
  layers: 512,
  /** All layers together, unpacked; so is a compressed archive. */
  unpackedBytes: 64 * GIB,
  /** Entries of all layers together, folders that are only implied included. */
  entries: 1_000_000,
  /** Bytes of all names and link targets together. */
  nameBytes: 256 * 1024 * 1024,
  pathBytes: 4096,
  /** What a file system takes for one part of a path. */
  partBytes: 255,
  /** Links on the way to one file, as the kernel counts. */
  linkHops: 40,
  /** Names of one file in ext4. */
  hardLinks: 65_000,
  /** Variables of the configuration, name and value. */
  environmentBytes: 64 * 1024,
} as const

/** @param why what is wrong with it, as the rest of a sentence about the archive */
export function refuse(why: string, cause?: unknown): Kosa8Error {
  return new Kosa8Error('IMAGE_ARCHIVE_INVALID', `the archive cannot be imported: ${why}`, {
    hint: 'save the image again (docker save, or an OCI image layout) and import that', cause,
  })
}

/** An error for what no files are in. */
export function refuseEmpty(): Kosa8Error {
  return refuse('it is no tar archive, or an empty one')
}

/** An error for files that are those of no image. */
export function refuseWithoutImage(): Kosa8Error {
  return refuse('it has neither an index.json (OCI image layout) nor a manifest.json (docker save)')
}

/** An error for something beyond a limit, which it says. */
export function refuseTooMuch(what: string, limit: number): Kosa8Error {
  const amount = limit >= GIB ? `${limit / GIB} GiB` : limit.toLocaleString('en')
  return new Kosa8Error('IMAGE_ARCHIVE_INVALID', `the archive cannot be imported: ${what}, the limit is ${amount}`, {
    hint: 'make the image smaller; a limit no sound image reaches means that the archive is damaged or hostile',
  })
}

/** Text from an archive, fit for a terminal: no control characters, at most 200 characters. */
export function printable(text: string): string {
  const short = text.length > 200 ? `${text.slice(0, 200)}…` : text
  return short.replace(/[\u0000-\u001f\u007f-\u009f]/g, '?')
}
