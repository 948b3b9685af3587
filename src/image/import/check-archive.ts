/**
 * A look at an archive before anything is made for it: building the base image may come first, and takes minutes.
 *
 * Owns: what can be seen at once. That it is there and may be read, and that it begins as an archive does. Does not
 * own: whether there is an image in it that fits (`image-manifest.ts`).
 */
import { stat } from 'node:fs/promises'
import { Kosa8Error } from '../../errors/kosa8-error.js'
import { openWithoutWaiting } from '../../util/open-without-waiting.js'
import { TarReader } from '../../util/tar-reader.js'
import { openFolder } from './archive.js'
import { detectCompression } from './decompress.js'
import { refuse, refuseEmpty, refuseWithoutImage } from './refuse.js'

/** @throws Kosa8Error USAGE when there is nothing that can be read, IMAGE_ARCHIVE_INVALID when it is no archive. */
export async function checkArchive(file: string): Promise<void> {
  const found = await stat(file).catch((error: unknown) => { throw refuseToRead(file, error) })
  // Before it is opened: whoever waits to write to a named pipe would take us for its reader.
  if (!found.isFile() && !found.isDirectory()) throw new Kosa8Error('USAGE', `${file} is neither a file nor a folder`, { hint: WHAT_TO_GIVE })
  const handle = await openWithoutWaiting(file).catch((error: unknown) => { throw refuseToRead(file, error) })
  if (found.isFile()) return checkBeginning(handle.createReadStream())
  await handle.close()
  const folder = openFolder(file)
  if (!await folder.has('index.json') && !await folder.has('manifest.json')) throw refuseWithoutImage()
}

/** A compressed one is told by its first bytes, any other by its first entry. */
async function checkBeginning(stream: AsyncIterable<Buffer> & { destroy(): void }): Promise<void> {
  try {
    const { compression, content } = await detectCompression(stream)
    if (compression !== null) return
    if (await new TarReader(content, { encoding: 'utf8', refuse }).next() === null) throw refuseEmpty()
  } finally {
    stream.destroy()
  }
}

function refuseToRead(file: string, cause: unknown): Kosa8Error {
  const { code, message } = cause as NodeJS.ErrnoException
  const what = code === 'ENOENT' ? `there is no file or folder ${file}` : `${file} cannot be read: ${message}`
  return new Kosa8Error('USAGE', what, { hint: WHAT_TO_GIVE, cause })
}

const WHAT_TO_GIVE = 'give a file made by `docker save`, or an OCI image layout as a tar archive or a folder'
