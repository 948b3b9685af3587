/**
 * Repositories inside the working tree: their files are ordinary files to us.
 *
 * Owns: listing them. Git itself would store a pointer only, or stop at a repository without a commit. Their
 * own ignore rules apply, and those of the folders above; their `.git` is never entered.
 */
import type { OmittedPath } from '../model/diff.js'
import { joinRecords, pathKey, showPath, splitRecords } from './paths.js'
import { runInPlace, stageGit, type StagePlace } from './stage-place.js'
import { commandError } from './workspace.js'

/** Files below nested repositories, relative to the top of the working tree. */
export interface NestedFiles {
  files: Buffer[]
  omitted: OmittedPath[]
  notes: string[]
}

const REPOSITORIES_MAX = 200

/** Lists the files of nested repositories, and of those nested in them. `roots` end with a slash. */
export async function findNested(place: StagePlace, roots: Buffer[]): Promise<NestedFiles> {
  const found: NestedFiles = { files: [], omitted: [], notes: [] }
  const waiting = [...roots]
  for (let count = 0; waiting.length > 0; count++) {
    const root = waiting.shift()!
    const name = showPath(root)
    if (count >= REPOSITORIES_MAX || !root.equals(Buffer.from(name))) {
      found.omitted.push({ path: name, bytes: 0, reason: 'nested repository, not collected' })
      continue
    }
    if (await isLinkedWorktree(place, name)) {
      found.omitted.push({ path: name, bytes: 0, reason: 'linked worktree of a repository, not collected' })
      continue
    }
    found.notes.push(`nested repository at ${name}`)
    for (const path of splitRecords(await listBelow(place, name))) {
      const full = Buffer.concat([root, path])
      if (path.at(-1) === 0x2f) waiting.push(full)
      else found.files.push(full)
    }
  }
  found.files = await withoutIgnored(place, found.files)
  return found
}

const LINK_SCRIPT = '[ -f "$1" ] && [ ! -L "$1" ] && head -c 4096 "$1"'

/** A second checkout of a repository (`git worktree add`): its files are copies, not work of their own. */
async function isLinkedWorktree(place: StagePlace, folder: string): Promise<boolean> {
  const result = await runInPlace(place, ['sh', '-c', LINK_SCRIPT, 'sh', `./${folder}.git`])
  return /^gitdir: .*\/worktrees\/[^/\n]+\n?$/.test(result.stdout.toString('utf8'))
}

/** New files below a folder, taking it for the top of a working tree of its own. */
function listBelow(place: StagePlace, folder: string): Promise<Buffer> {
  const below = { ...place, workTree: `${place.workTree}/${folder.slice(0, -1)}`, index: `${place.gitDir}/no-index` }
  return stageGit(below, ['ls-files', '-o', '-z', '--exclude-standard'])
}

async function withoutIgnored(place: StagePlace, files: Buffer[]): Promise<Buffer[]> {
  if (files.length === 0) return files
  const ignored = new Set((await checkIgnored(place, files)).map(pathKey))
  return files.filter((file) => !ignored.has(pathKey(file)))
}

/** Those of `paths` that the ignore rules of the working tree hide, tracked or not. */
async function checkIgnored(place: StagePlace, paths: Buffer[]): Promise<Buffer[]> {
  const result = await runInPlace(place, ['git', 'check-ignore', '-z', '--stdin', '--no-index'], asPlainPaths(paths))
  // Exit status 1 says that none is ignored.
  if (result.exitCode > 1) throw commandError('git check-ignore', result.exitCode, result.stderr.toString('utf8'))
  return fromPlainPaths(result.stdout)
}

const HERE = Buffer.from('./')

/** A path for a command that would take a leading `:`, `!` or `-` for something else. */
export function asPlainPath(path: Buffer): Buffer {
  return Buffer.concat([HERE, path])
}

/** Such paths as the standard input of a command. */
export function asPlainPaths(paths: readonly Buffer[]): Buffer {
  return joinRecords(paths.map(asPlainPath))
}

/** The paths such a command gives back. */
export function fromPlainPaths(output: Buffer): Buffer[] {
  return splitRecords(output).map((path) => path.subarray(HERE.length))
}
