/**
 * The changed paths between two commits or trees, as plain data.
 *
 * Owns: reading git's raw and count listings. All of it is computed on the host from checked objects, with no
 * setting or attribute of the user's or the guest's.
 */
import type { FileChange } from '../model/diff.js'
import { runGit, type GitPlace } from './host-git.js'
import { countEndingOnly } from './line-endings.js'
import { pathKey, showPath, splitRecords } from './paths.js'

const LIST_BYTES_MAX = 256 * 1024 * 1024
const SIMILAR = ['-M', '-l2000']

/** Lists what changed from `from` to `to`, renames found, sorted by path. */
export async function listChanges(place: GitPlace, from: string, to: string, signal?: AbortSignal): Promise<FileChange[]> {
  const options = { outputBytesMax: LIST_BYTES_MAX, signal }
  const raw = splitRecords(await runGit(place, ['diff-tree', '-r', '-z', '--raw', '--no-abbrev', ...SIMILAR, from, to], options))
  const counts = await countLines(place, from, to, signal)
  const entries = parseRaw(raw)
  const sizes = await readSizes(place, entries, signal)
  const isRewritten = (entry: RawEntry): boolean => {
    const lines = counts.get(pathKey(entry.path))
    return lines !== null && lines !== undefined && lines.insertions > 0 && lines.deletions > 0
  }
  const contents = await readContents(place, entries.filter(isRewritten), sizes, signal)
  return entries.map((entry) => {
    const change = describe(entry)
    const lines = counts.get(pathKey(entry.path))
    if (lines === null) return { ...change, ...sizesOf(entry, sizes) }
    change.insertions = lines?.insertions ?? 0
    change.deletions = lines?.deletions ?? 0
    const [before, after] = [contents.get(entry.oldOid), contents.get(entry.newOid)]
    if (before === undefined || after === undefined) return change
    const endingOnly = countEndingOnly(before, after, change.insertions)
    return endingOnly === null || endingOnly === 0 ? change : { ...change, endingOnly }
  })
}

interface RawEntry {
  status: FileChange['status']
  oldMode: string
  newMode: string
  oldOid: string
  newOid: string
  path: Buffer
  oldPath: Buffer | null
}

function parseRaw(records: Buffer[]): RawEntry[] {
  const entries: RawEntry[] = []
  for (let at = 0; at < records.length;) {
    const [oldMode, newMode, oldOid, newOid, letters] = records[at]!.toString('latin1').slice(1).split(' ')
    const status = letters![0] as FileChange['status']
    const isRename = status === 'R'
    const first = records[at + 1]!
    entries.push({
      status, oldMode: oldMode!, newMode: newMode!, oldOid: oldOid!, newOid: newOid!,
      path: isRename ? records[at + 2]! : first, oldPath: isRename ? first : null,
    })
    at += isRename ? 3 : 2
  }
  return entries
}

function describe(entry: RawEntry): FileChange {
  const mode = (text: string): string | null => text === '000000' ? null : text
  return {
    status: entry.status, path: showPath(entry.path),
    ...(entry.oldPath === null ? {} : { oldPath: showPath(entry.oldPath) }),
    oldMode: mode(entry.oldMode), newMode: mode(entry.newMode), insertions: null, deletions: null,
  }
}

interface LineCounts {
  insertions: number
  deletions: number
}

/** Lines by path; null for a binary file. */
async function countLines(
  place: GitPlace, from: string, to: string, signal?: AbortSignal,
): Promise<Map<string, LineCounts | null>> {
  const records = splitRecords(await runGit(place, ['diff-tree', '-r', '-z', '--numstat', '--no-ext-diff', '--no-textconv',
    ...SIMILAR, from, to], { outputBytesMax: LIST_BYTES_MAX, signal }))
  const counts = new Map<string, LineCounts | null>()
  for (let at = 0; at < records.length; at++) {
    const text = pathKey(records[at]!)
    const [insertions, deletions] = text.split('\t', 2)
    let path = text.slice(insertions!.length + deletions!.length + 2)
    if (path === '') {
      path = pathKey(records[at + 2]!)
      at += 2
    }
    counts.set(path, insertions === '-' ? null : { insertions: Number(insertions), deletions: Number(deletions) })
  }
  return counts
}

async function readSizes(place: GitPlace, entries: RawEntry[], signal?: AbortSignal): Promise<Map<string, number>> {
  const sizes = new Map<string, number>()
  if (entries.length === 0) return sizes
  const oids = entries.flatMap((entry) => [entry.oldOid, entry.newOid]).filter((oid) => !/^0+$/.test(oid))
  const output = await runGit(place, ['cat-file', '--batch-check=%(objectname) %(objectsize)'], {
    stdin: `${oids.join('\n')}\n`, outputBytesMax: LIST_BYTES_MAX, signal,
  })
  for (const line of output.toString('latin1').split('\n')) {
    const [oid, size] = line.split(' ')
    if (/^\d+$/.test(size ?? '')) sizes.set(oid!, Number(size))
  }
  return sizes
}

/** Larger files are not compared by their line endings, nor any beyond this sum. */
const CONTENT_BYTES_MAX = 2 * 1024 * 1024
const CONTENTS_BYTES_MAX = 32 * 1024 * 1024

/** Contents before and after, by object id; those of large files are not among them. */
async function readContents(
  place: GitPlace, entries: RawEntry[], sizes: Map<string, number>, signal?: AbortSignal,
): Promise<Map<string, Buffer>> {
  const wanted = new Set<string>()
  let totalBytes = 0
  for (const { oldOid, newOid } of entries) {
    const bytes = [oldOid, newOid].map((oid) => sizes.get(oid) ?? Infinity)
    const sum = bytes[0]! + bytes[1]!
    if (Math.max(...bytes) > CONTENT_BYTES_MAX || totalBytes + sum > CONTENTS_BYTES_MAX) continue
    totalBytes += sum
    wanted.add(oldOid).add(newOid)
  }
  if (wanted.size === 0) return new Map()
  const output = await runGit(place, ['cat-file', '--batch=%(objectname) %(objectsize)'], {
    stdin: `${[...wanted].join('\n')}\n`, outputBytesMax: LIST_BYTES_MAX, signal,
  })
  return cutContents(output)
}

/** Records `<id> <size>`, a line feed, the content, and another line feed. */
function cutContents(output: Buffer): Map<string, Buffer> {
  const contents = new Map<string, Buffer>()
  for (let at = 0; at < output.length;) {
    const start = output.indexOf(10, at) + 1
    const [oid, size] = output.toString('latin1', at, start - 1).split(' ')
    contents.set(oid!, output.subarray(start, start + Number(size)))
    at = start + Number(size) + 1
  }
  return contents
}

function sizesOf(entry: RawEntry, sizes: Map<string, number>): Pick<FileChange, 'oldBytes' | 'newBytes'> {
  const oldBytes = sizes.get(entry.oldOid)
  const newBytes = sizes.get(entry.newOid)
  return { ...(oldBytes === undefined ? {} : { oldBytes }), ...(newBytes === undefined ? {} : { newBytes }) }
}
