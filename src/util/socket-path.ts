/**
 * Unix socket paths that fit: the kernel takes at most 107 bytes, state homes can be deeper.
 *
 * Owns: the one rule by which every process of a home finds its sockets. Where the longest of them would not fit
 * below the home, all of them lie in a folder of the temporary folder, named by a hash of the home's path.
 */
import { createHash } from 'node:crypto'
import { lstat } from 'node:fs/promises'
import path from 'node:path'
import { makeFolder } from './make-folder.js'

/** Bytes of `sun_path` on Linux, less its final zero. */
const SOCKET_PATH_BYTES_MAX = 107

/** Longest of our socket paths below the home: `machines/m-<16 hex>/` and 24 bytes for a driver's own name. */
const SOCKET_SUFFIX_BYTES = '/machines/m-0123456789abcdef/'.length + 24

/** Fixed and short; TMPDIR differs between sessions of one user, who must all find the same sockets. */
export const SHORT_ROOT = '/tmp'

/** Folder the sockets of a state home lie in or below: the home itself (absolute), or a short folder made from its hash. */
export function socketRootOf(home: string): string {
  if (Buffer.byteLength(home) + SOCKET_SUFFIX_BYTES <= SOCKET_PATH_BYTES_MAX) return home
  return path.join(SHORT_ROOT, `kosa8-${createHash('sha256').update(home).digest('hex').slice(0, 16)}`)
}

/** Where the daemon of a home listens. */
export function daemonSocketOf(home: string): string {
  return path.join(socketRootOf(home), 'daemon.sock')
}

/**
 * Makes the folder a socket is to lie in, for its owner only.
 * @throws Error when the folder belongs to somebody else or is open to others: the temporary folder is shared.
 */
export async function prepareSocketFolder(socketPath: string): Promise<void> {
  const folder = path.dirname(socketPath)
  await makeFolder(folder, 0o700)
  if (path.dirname(folder) !== SHORT_ROOT) return
  const found = await lstat(folder)
  if (!found.isDirectory() || found.uid !== process.getuid?.() || (found.mode & 0o077) !== 0) {
    throw new Error(`${folder} is not a private folder of this user`)
  }
}
