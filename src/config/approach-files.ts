/** Reads the files approaches are written in, within bounds and with errors that name the file. */
import { stat } from 'node:fs/promises'
import path from 'node:path'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { openWithoutWaiting } from '../util/open-without-waiting.js'

/** Largest script or patch of an approach, in bytes. */
export const APPROACH_BYTES_MAX = 1024 * 1024

/** Text of a script or patch; `relative` is relative to `folder`. @throws APPROACH_INVALID. */
export async function readApproachText(folder: string, relative: string): Promise<string> {
  const handle = await openWithoutWaiting(path.resolve(folder, relative)).catch((error: NodeJS.ErrnoException) => { throw unreadable(relative, error) })
  try {
    const found = await handle.stat()
    if (!found.isFile()) throw new Kosa8Error('APPROACH_INVALID', `${relative} is not a regular file`)
    if (found.size > APPROACH_BYTES_MAX) {
      throw new Kosa8Error('APPROACH_INVALID', `${relative} has ${found.size} bytes; at most ${APPROACH_BYTES_MAX} are allowed`)
    }
    if (found.size === 0) throw new Kosa8Error('APPROACH_INVALID', `${relative} is empty`)
    return decodeText(await handle.readFile(), relative)
  } finally {
    await handle.close()
  }
}

/** Absolute path of a strategy module that is there. @throws APPROACH_INVALID. */
export async function requireModule(folder: string, relative: string): Promise<string> {
  const file = path.resolve(folder, relative)
  const found = await stat(file).catch((error: NodeJS.ErrnoException) => { throw unreadable(relative, error) })
  if (!found.isFile()) throw new Kosa8Error('APPROACH_INVALID', `${relative} is not a regular file`)
  return file
}

/** Patches and scripts travel as JSON text: bytes that are no UTF-8 would arrive as something else. */
function decodeText(bytes: Buffer, relative: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    throw new Kosa8Error('APPROACH_INVALID', `${relative} is not UTF-8 text`, {
      hint: 'make a patch with `git diff --binary`, or use a .ts or .js strategy',
    })
  }
}

function unreadable(relative: string, error: NodeJS.ErrnoException): Kosa8Error {
  const reason = error.code === 'ENOENT' ? 'does not exist' : `cannot be read: ${error.message}`
  return new Kosa8Error('APPROACH_INVALID', `${relative} ${reason}`, { cause: error })
}
