/**
 * Files that are not in a diff because a rule hides them, or because they are no files.
 *
 * Owns: listing what was made or changed since the checkpoint, within bounds: a folder with many files is one
 * entry. Files that only a rule of the approach's hides are marked, since a patch without them may not work.
 */
import type { OmittedPath } from '../model/diff.js'
import { BASE_INDEX, BASE_MARKER } from './evidence.js'
import { asPlainPath, asPlainPaths, fromPlainPaths } from './nested.js'
import { pathKey, pathOfKey, showPath, splitRecords } from './paths.js'
import { sectionOutput, type ScriptResult } from './sections.js'
import { runInPlace, runOnPaths, type StagePlace } from './stage-place.js'
import { commandError } from './workspace.js'

const FILES_MAX = 20_000
/** A folder with more new files than this becomes one entry. */
const FILES_PER_FOLDER_MAX = 20
const ENTRIES_MAX = 200

/** Asks for ignored paths, folders as one, and whether there is anything made since that is no file at all. */
export const LEFT_OUT_SCRIPT = `
git ls-files -o -i -z --exclude-standard --directory; end ignored
find . -name .git -prune -o ! -type f ! -type d ! -type l -cnewer "$GIT_DIR/${BASE_MARKER}" -print -quit; end special
`
const CHANGED_SCRIPT = `
find "$@" -name .git -prune -o -cnewer "$GIT_DIR/${BASE_MARKER}" \\( -type f -o -type l \\) -printf "%y %s %p\\0" | head -z -n ${FILES_MAX}
`
const SPECIAL_SCRIPT = `
find . -name .git -prune -o ! -type f ! -type d ! -type l -cnewer "$GIT_DIR/${BASE_MARKER}" -printf '%y %P\\0' | head -z -n ${ENTRIES_MAX}
`
/** A working tree of nothing but the base's ignore files, and what they hide of the given paths. */
const BASE_RULES_SCRIPT = `
set -e
exec 3<&0
rm -rf "$1" "$2"; mkdir -p "$1"
git ls-files -z -c | { grep -z -E '(^|/)\\.gitignore$' || true; } | git checkout-index -z --stdin -f -q --prefix="$1/"
GIT_WORK_TREE="$1" GIT_INDEX_FILE="$2" git -C "$1" check-ignore -z --stdin --no-index <&3 || [ $? -eq 1 ]
rm -rf "$1"
`

/** Ignored files that are new or changed since the checkpoint, and the ignored paths they were found below. */
export interface IgnoredFiles {
  files: IgnoredFile[]
  roots: string[]
}

/** Finds them after {@link LEFT_OUT_SCRIPT} was run, at most some thousand. */
export async function findIgnored(place: StagePlace, result: ScriptResult): Promise<IgnoredFiles> {
  const roots = splitRecords(sectionOutput(result, 'ignored'))
  if (roots.length === 0) return { files: [], roots: [] }
  const found = await runOnPaths(place, ['sh', '-c', CHANGED_SCRIPT, 'sh'], roots.map(asPlainPath))
  return { files: splitRecords(found.stdout).slice(0, FILES_MAX).map(parseFile), roots: roots.map(pathKey) }
}

/** Entries for ignored files, those apart that were collected all the same. */
export async function describeIgnored(
  place: StagePlace, ignored: IgnoredFiles, collected: ReadonlySet<string>,
): Promise<OmittedPath[]> {
  const files = ignored.files.filter((file) => !collected.has(file.key))
  return group(files, ignored.roots, await readHiddenBefore(place, files.map((file) => pathOfKey(file.key))))
}

/** Lists FIFOs, sockets and devices made since the checkpoint. */
export async function listSpecial(place: StagePlace, result: ScriptResult): Promise<OmittedPath[]> {
  if (result.sections.get('special')?.output.length === 0) return []
  const listed = await runInPlace(place, ['sh', '-c', SPECIAL_SCRIPT])
  return splitRecords(listed.stdout).map((record) => {
    const kind = SPECIAL_KINDS[String.fromCharCode(record[0]!)] ?? 'special file'
    return { path: showPath(record.subarray(2)), bytes: 0, reason: `not a regular file (${kind})` }
  })
}

const SPECIAL_KINDS: Readonly<Record<string, string>> = { p: 'FIFO', s: 'socket', c: 'device', b: 'device' }

/** One of them; its key as in paths.ts. */
export interface IgnoredFile {
  key: string
  sizeBytes: number
}

/** A record `<kind> <size> ./<path>`. */
function parseFile(record: Buffer): IgnoredFile {
  const text = pathKey(record)
  const [, size] = text.split(' ', 2)
  return { key: text.slice(2 + size!.length + 1 + 2), sizeBytes: Number(size) }
}

async function readHiddenBefore(place: StagePlace, paths: Buffer[]): Promise<Set<string>> {
  if (paths.length === 0) return new Set()
  const folder = `${place.gitDir}/base-rules`
  const base = { ...place, index: `${place.gitDir}/${BASE_INDEX}` }
  const result = await runInPlace(base, ['sh', '-c', BASE_RULES_SCRIPT, 'sh', folder, `${folder}.index`], asPlainPaths(paths))
  if (result.exitCode !== 0) throw commandError("looking up the base's ignore rules", result.exitCode, result.stderr.toString('utf8'))
  return new Set(fromPlainPaths(result.stdout).map(pathKey))
}

function group(files: IgnoredFile[], roots: string[], hiddenBefore: Set<string>): OmittedPath[] {
  const folders = new Set(roots.filter((root) => root.endsWith('/')))
  const byRoot = new Map<string, IgnoredFile[]>()
  for (const file of files) {
    const root = findRoot(file.key, folders)
    byRoot.set(root, [...byRoot.get(root) ?? [], file])
  }
  const entries = [...byRoot].flatMap(([root, members]) => {
    if (members.length <= FILES_PER_FOLDER_MAX) return members.map((file) => describe(file.key, file.sizeBytes, hiddenBefore.has(file.key), null))
    const bytes = members.reduce((sum, file) => sum + file.sizeBytes, 0)
    return [describe(root, bytes, hiddenBefore.has(members[0]!.key), members.length)]
  })
  if (entries.length <= ENTRIES_MAX) return entries
  const rest = entries.splice(ENTRIES_MAX)
  return [...entries, {
    path: '…', bytes: rest.reduce((sum, entry) => sum + entry.bytes, 0), reason: `${rest.length} more ignored entries`,
  }]
}

function findRoot(key: string, folders: Set<string>): string {
  for (let slash = key.indexOf('/'); slash !== -1; slash = key.indexOf('/', slash + 1)) {
    const folder = key.slice(0, slash + 1)
    if (folders.has(folder)) return folder
  }
  return key
}

/** Reason of files hidden by a rule that was there at the checkpoint, and by one that was not. */
export const IGNORED = 'ignored'
export const IGNORED_BY_NEW_RULE = 'ignored by a rule the approach added'

function describe(key: string, bytes: number, wasHidden: boolean, count: number | null): OmittedPath {
  const reason = wasHidden ? IGNORED : IGNORED_BY_NEW_RULE
  return { path: showPath(pathOfKey(key)), bytes, reason: count === null ? reason : `${reason}, ${count} files` }
}
