/**
 * From a working tree to a tree object, byte by byte, whatever lies in it.
 *
 * Owns: finding what differs from an index (changed, deleted, new and not ignored, nested repositories), deciding
 * what goes in, and writing the tree. Runs on the host for the base and in the guest for the evidence; the
 * index it works on is a copy, the git folder a private one (private-git.ts).
 */
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { OmittedPath } from '../model/diff.js'
import { findNested } from './nested.js'
import { foldersAbove, joinRecords, pathKey, pathOfKey, isUnsafePath, showPath, splitRecords } from './paths.js'
import { readScan, SCAN_SCRIPT, type Scan } from './scan.js'
import { runSections } from './sections.js'
import { checkedInPlace, runOnPaths, stageGit, type StagePlace } from './stage-place.js'

/** Bounds of what goes into a tree. */
export interface StageLimits {
  /** Bytes of one file. */
  fileBytesMax: number
  /** Bytes of all changed and new files together. */
  totalBytesMax: number
  /** New files; beyond it the fullest top folders are left out whole. */
  entriesMax: number
}

/** The tree, and what was left out or is worth knowing. */
export interface StagedTree {
  tree: string
  /** Keys (paths.ts) of what was taken in. */
  added: ReadonlySet<string>
  omitted: OmittedPath[]
  notes: string[]
}

/** Paths to take in beside those that git would list as new. */
export interface StageExtras {
  /** Files, although they are ignored. */
  forced: readonly Buffer[]
  /** Folders with a repository of their own that are taken as a pointer to its commit. */
  submodules: readonly Buffer[]
}

/** Looks at the working tree and writes it as a tree. */
export async function stageWorkingTree(place: StagePlace, limits: StageLimits): Promise<StagedTree> {
  return stageScan(place, readScan(await runSections(place, SCAN_SCRIPT)), limits)
}

/** Writes the tree of a working tree that was looked at. */
export async function stageScan(
  place: StagePlace, scan: Scan, limits: StageLimits, extras: StageExtras = { forced: [], submodules: [] },
): Promise<StagedTree> {
  const submodules = new Set(extras.submodules.map(pathKey))
  const isNested = (path: Buffer): boolean => path.at(-1) === SLASH && !submodules.has(pathKey(path.subarray(0, -1)))
  const nested = await findNested(place, scan.untracked.filter(isNested))
  const listed = new Set(scan.untracked.map(pathKey))
  const forced = extras.forced.filter((path) => !listed.has(pathKey(path)))
  const fresh = [...scan.untracked.filter((path) => path.at(-1) !== SLASH), ...nested.files, ...forced, ...extras.submodules]
  const above = new Set(forced.flatMap((path) => foldersAbove(pathKey(path))))
  const choice = new Choice(limits, submodules, await readStats(place, [...fresh, ...[...above, ...scan.changed.keys()].map(pathOfKey)]))
  for (const path of fresh) choice.considerNew(path)
  for (const [key, oldMode] of scan.changed) choice.considerTracked(key, oldMode)
  const { add, remove, omitted } = choice.settle()
  const tree = await writeTree(place, add, [...scan.deleted, ...remove])
  return { tree, added: new Set(add.map(pathKey)), omitted: [...omitted, ...nested.omitted], notes: nested.notes }
}

const SLASH = 0x2f

async function writeTree(place: StagePlace, add: Buffer[], remove: Buffer[]): Promise<string> {
  if (remove.length > 0) await stageGit(place, ['update-index', '-z', '--force-remove', '--stdin'], joinRecords(remove))
  const tree = add.length === 0
    ? await stageGit(place, ['write-tree'])
    : await checkedInPlace(place, 'git update-index', ['sh', '-c', ADD_SCRIPT], joinRecords(add))
  return tree.toString('latin1').trim()
}

const ADD_SCRIPT = 'git update-index -z --add --replace --stdin && exec git write-tree'

interface FileStat {
  /** File type bits of the mode. */
  type: number
  sizeBytes: number
}

const TYPE_BITS = 0o170000
const REGULAR = 0o100000
const LINK = 0o120000
const FOLDER = 0o040000

/** Kind and size of paths, links not followed; paths that are not there are not in the answer. */
async function readStats(place: StagePlace, paths: Buffer[]): Promise<Map<string, FileStat>> {
  const stats = new Map<string, FileStat>()
  if (paths.length === 0) return stats
  const result = await runOnPaths(place, ['stat', '--printf', '%f %s %n\\0', '--'], paths)
  for (const record of splitRecords(result.stdout)) {
    const text = pathKey(record)
    const [mode, size] = text.split(' ', 2)
    stats.set(text.slice(mode!.length + size!.length + 2), {
      type: parseInt(mode!, 16) & TYPE_BITS, sizeBytes: Number(size),
    })
  }
  return stats
}

/** Decides path by path what goes in, what goes out, and what is left as the base has it. */
class Choice {
  private readonly files = new Map<string, { sizeBytes: number; isNew: boolean }>()
  private readonly other = new Set<string>()
  private readonly remove: Buffer[] = []
  private readonly omitted: OmittedPath[] = []

  constructor(
    private readonly limits: StageLimits, private readonly submodules: Set<string>, private readonly stats: Map<string, FileStat>,
  ) {}

  considerNew(path: Buffer): void {
    const key = pathKey(path)
    const stat = this.stats.get(key)
    if (stat === undefined || (stat.type === FOLDER && !this.submodules.has(key))) return
    // What a link leads to is not in the tree, whatever an index says.
    if (foldersAbove(key).some((folder) => this.stats.get(folder)?.type === LINK)) return
    if (isUnsafePath(path)) return this.omit(path, stat.sizeBytes, 'a name git refuses')
    this.consider(path, stat, true)
  }

  considerTracked(key: string, oldMode: string): void {
    const path = pathOfKey(key)
    const stat = this.stats.get(key)
    if (stat === undefined || (stat.type === FOLDER && oldMode !== '160000')) this.remove.push(path)
    else this.consider(path, stat, false)
  }

  private consider(path: Buffer, stat: FileStat, isNew: boolean): void {
    const key = pathKey(path)
    if (stat.type === REGULAR) this.files.set(key, { sizeBytes: stat.sizeBytes, isNew })
    else if (stat.type === LINK || stat.type === FOLDER) this.other.add(key)
    else if (!isNew) this.remove.push(path)
  }

  settle(): { add: Buffer[]; remove: Buffer[]; omitted: OmittedPath[] } {
    this.dropFullFolders()
    this.dropLargeFiles()
    const add = [...this.other, ...this.files.keys()].sort().map(pathOfKey)
    return { add, remove: this.remove, omitted: this.omitted }
  }

  private dropLargeFiles(): void {
    let totalBytes = 0
    const bySize = [...this.files].sort(([a, left], [b, right]) => left.sizeBytes - right.sizeBytes || (a < b ? -1 : 1))
    for (const [key, { sizeBytes }] of bySize) {
      const reason = sizeBytes > this.limits.fileBytesMax
        ? `larger than ${this.limits.fileBytesMax} bytes`
        : totalBytes + sizeBytes > this.limits.totalBytesMax ? `changes larger than ${this.limits.totalBytesMax} bytes in all` : null
      if (reason === null) {
        totalBytes += sizeBytes
        continue
      }
      this.files.delete(key)
      this.omit(pathOfKey(key), sizeBytes, reason)
    }
  }

  private dropFullFolders(): void {
    const folders = new Map<string, string[]>()
    let count = 0
    for (const [key, { isNew }] of this.files) {
      if (!isNew) continue
      count += 1
      const slash = key.indexOf('/')
      const folder = slash === -1 ? '' : key.slice(0, slash + 1)
      const members = folders.get(folder)
      if (members === undefined) folders.set(folder, [key])
      else members.push(key)
    }
    const fullest = [...folders].sort(([, a], [, b]) => b.length - a.length)
    for (const [folder, keys] of fullest) {
      if (count <= this.limits.entriesMax) return
      count -= keys.length
      let sizeBytes = 0
      for (const key of keys) {
        sizeBytes += this.files.get(key)!.sizeBytes
        this.files.delete(key)
      }
      this.omit(Buffer.from(folder === '' ? '.' : folder, 'latin1'), sizeBytes, `${keys.length} new files, too many to collect`)
    }
  }

  private omit(path: Buffer, bytes: number, reason: string): void {
    this.omitted.push({ path: showPath(path), bytes, reason })
  }
}

/**
 * Checks that a text from the guest is an object id.
 * @throws Kosa8Error EVIDENCE_REFUSED.
 */
export function checkObjectId(text: string, objectFormat: string): string {
  const length = objectFormat === 'sha256' ? 64 : 40
  if (new RegExp(`^[0-9a-f]{${length}}$`).test(text)) return text
  throw new Kosa8Error('EVIDENCE_REFUSED', 'the guest named an object that cannot be one')
}
