/**
 * Unpacking a tar archive whose writer is not trusted.
 *
 * Owns: unpacking into a folder nothing leads out of: no `..`, no special files, links made only after everything
 * else. Reading the archive is `tar-reader.ts`.
 */
import { createWriteStream } from 'node:fs'
import { link, symlink } from 'node:fs/promises'
import path from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { makeFolder } from './make-folder.js'
import { TarReader, type TarEntry } from './tar-reader.js'

const ENTRIES_MAX = 2_000_000
/** Characters of all names and link targets together, many of which are kept to the end. */
const NAMES_LENGTH_MAX = 256 * 1024 * 1024

/** What came of an archive. */
export interface Unpacked {
  files: number
  sizeBytes: number
  /** Devices, pipes and sockets, which are left out. */
  skipped: string[]
}

/**
 * Unpacks an archive into `folder`, which is empty and nobody else's.
 * @throws Kosa8Error GUEST_PROTOCOL when it is none, or leads out of the folder.
 */
export async function unpackTar(archive: Readable, folder: string): Promise<Unpacked> {
  const reader = new TarReader(archive as AsyncIterable<Buffer>, { encoding: 'utf8', refuse })
  const unpacked: Unpacked = { files: 0, sizeBytes: 0, skipped: [] }
  const links: TarEntry[] = []
  let count = 0
  let namesLength = 0
  for (let entry = await reader.next(); entry !== null; entry = await reader.next()) {
    if ((count += 1) > ENTRIES_MAX) throw refuse('it has too many entries')
    if ((namesLength += entry.name.length + entry.linkName.length) > NAMES_LENGTH_MAX) throw refuse('its names are too long')
    if (entry.type === 'symlink') links.push(entry)
    else await unpackEntry(entry, reader, folder, unpacked)
  }
  for (const { name, linkName } of links) {
    await makeFolder(path.dirname(placeOf(folder, name)))
    await symlink(linkName, placeOf(folder, name))
  }
  await reader.drain() // what the writer pads with
  return unpacked
}

async function unpackEntry(entry: TarEntry, reader: TarReader, folder: string, unpacked: Unpacked): Promise<void> {
  const place = placeOf(folder, entry.name)
  if (entry.type === 'folder') {
    await makeFolder(place, (entry.mode & 0o777) | 0o700)
    return
  }
  if (entry.type !== 'file' && entry.type !== 'link') {
    unpacked.skipped.push(entry.name)
    return
  }
  await makeFolder(path.dirname(place))
  if (entry.type === 'link') {
    await link(placeOf(folder, entry.linkName), place)
    return
  }
  const file = createWriteStream(place, { flags: 'wx', mode: entry.mode & 0o777 })
  await pipeline(Readable.from(reader.content(), { objectMode: false }), file)
  unpacked.files += 1
  unpacked.sizeBytes += entry.sizeBytes
}

/** Nothing but real folders made by us lies below `folder` while files are written. */
function placeOf(folder: string, name: string): string {
  const parts = name.split('/').filter((part) => part !== '' && part !== '.')
  if (parts.includes('..')) throw refuse(`it names ${JSON.stringify(name)}`)
  return path.join(folder, ...parts)
}

function refuse(why: string): Kosa8Error {
  return new Kosa8Error('GUEST_PROTOCOL', `the archive from the sandbox is refused: ${why}`)
}
