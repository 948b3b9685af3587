/**
 * Paths as git prints them: bytes between NULs, shown as text without losing any of them.
 */

const decoder = new TextDecoder('utf-8', { fatal: true })

/** Cuts output of `-z` commands into its records; the last one ends with a NUL like every other. */
export function splitRecords(output: Buffer): Buffer[] {
  const records: Buffer[] = []
  let start = 0
  for (let end = output.indexOf(0); end !== -1; end = output.indexOf(0, start)) {
    records.push(output.subarray(start, end))
    start = end + 1
  }
  return records
}

/** Joins records the way `--stdin -z` reads them. */
export function joinRecords(records: readonly Buffer[]): Buffer {
  const parts: Buffer[] = []
  for (const record of records) parts.push(record, NUL)
  return Buffer.concat(parts)
}

const NUL = Buffer.from([0])

/** Exact text of a path; bytes that are not UTF-8 appear as `\xNN`. */
export function showPath(path: Buffer): string {
  try {
    return decoder.decode(path)
  } catch {
    return showBytes(path)
  }
}

function showBytes(path: Buffer): string {
  let text = ''
  for (let at = 0; at < path.length;) {
    const length = sequenceLength(path, at)
    if (length === 0) {
      text += `\\x${path[at]!.toString(16).padStart(2, '0')}`
      at += 1
    } else {
      text += path.toString('utf8', at, at + length)
      at += length
    }
  }
  return text
}

/** Length of the valid UTF-8 sequence at `at`, 0 where there is none. */
function sequenceLength(bytes: Buffer, at: number): number {
  for (let length = 1; length <= 4 && at + length <= bytes.length; length++) {
    try {
      decoder.decode(bytes.subarray(at, at + length))
      return length
    } catch {
      // Not complete yet, or not UTF-8 at all: a longer try tells.
    }
  }
  return 0
}

/** A key for maps and sets that holds every byte of a path. */
export function pathKey(path: Buffer): string {
  return path.toString('latin1')
}

/** The path of a {@link pathKey}. */
export function pathOfKey(key: string): Buffer {
  return Buffer.from(key, 'latin1')
}

/** Keys of the folders that a path lies in, outermost first. */
export function foldersAbove(key: string): string[] {
  const folders: string[] = []
  for (let slash = key.indexOf('/'); slash !== -1; slash = key.indexOf('/', slash + 1)) folders.push(key.slice(0, slash))
  return folders
}

/** True where a folder or file of this path could reach git's own folder or leave the tree. */
export function isUnsafePath(path: Buffer): boolean {
  const text = pathKey(path)
  if (text === '' || text.startsWith('/')) return true
  return text.split('/').some((part) => part === '' || part === '.' || part === '..' || isGitFolderName(part))
}

/** `.git` also in the spellings that other file systems take for it. */
function isGitFolderName(part: string): boolean {
  return /^(\.git|git~1)[. ]*(:.*)?$/i.test(part)
}
