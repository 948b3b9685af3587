/**
 * Unix socket paths that fit: the kernel takes at most 107 bytes, home folders can be deeper.
 *
 * Owns: the rule both ends of a socket find it by. Where `<folder>/<name>` is too long, the socket lies
 * in a folder under the system's temporary folder whose name is derived from the folder's path.
 */
import { createHash } from 'node:crypto'
import { lstat, mkdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'

/** Longest path of a unix socket on Linux, in bytes. */
export const SOCKET_PATH_BYTES_MAX = 107

/** Path of the socket `name` that belongs to `folder` (absolute); the same on both ends. */
export function socketPathOf(folder: string, name: string): string {
  const direct = path.join(folder, name)
  if (Buffer.byteLength(direct) <= SOCKET_PATH_BYTES_MAX) return direct
  const key = createHash('sha256').update(folder).digest('hex').slice(0, 24)
  return path.join(tmpdir(), `kosa8-${process.getuid?.() ?? 0}-${key}`, name)
}

/**
 * Makes the folder a socket is to lie in, for its owner only.
 * @throws Error when the folder belongs to somebody else or is open to others: the temporary folder is shared.
 */
export async function prepareSocketFolder(socketPath: string): Promise<void> {
  const folder = path.dirname(socketPath)
  await mkdir(folder, { recursive: true, mode: 0o700 })
  if (path.dirname(folder) !== tmpdir()) return
  const found = await lstat(folder)
  if (!found.isDirectory() || found.uid !== process.getuid?.() || (found.mode & 0o077) !== 0) {
    throw new Error(`${folder} is not a private folder of this user`)
  }
}
