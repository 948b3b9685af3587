/**
 * Remarks on the guest's own repository: unfinished operations, commits that are not the approach's.
 *
 * Owns: their words. They explain a diff to its reader and never change it.
 */
import type { Base } from '../model/run.js'
import { BASE_TIPS } from './evidence.js'
import { readGuestRefs } from './guest-refs.js'
import { pathKey, showPath, splitRecords } from './paths.js'
import { privateEnvironment } from './private-git.js'
import { runInPlace, stageGit, type StagePlace } from './stage-place.js'
import type { Workspace } from './workspace.js'

/** What the guest's `.git` says beside the working tree. */
export interface GuestState {
  notes: string[]
  conflicts: string[]
  /** Paths the guest's index holds although they are ignored; those of the base's index are not among them. */
  forced: Buffer[]
  /** Paths the guest's index holds as submodules, and the base does not. */
  submodules: Buffer[]
}

const NOTHING: GuestState = { notes: [], conflicts: [], forced: [], submodules: [] }

const STATE_SCRIPT = `
g="$1/.git"; rm -f "$2"
if [ ! -d "$g" ] || [ -L "$g" ]; then [ -e "$g" ] && echo replaced || echo missing; exit 0; fi
for f in rebase-merge rebase-apply MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD; do [ -e "$g/$f" ] && echo "$f"; done
[ -e "$g/rebase-apply/applying" ] && echo applying
[ -f "$g/index" ] && [ ! -L "$g/index" ] && cp -p "$g/index" "$2"
exit 0
`
const TIME_LIMIT_MS = 60_000
const CONFLICTS_MAX = 1000

/** Looks at the guest's `.git`; where that is missing or unreadable, says so and goes on. */
export async function readGuestState(workspace: Workspace, place: StagePlace, base: Base): Promise<GuestState> {
  const copy = `${place.gitDir}/guest.index`
  const listed = await workspace.run(['sh', '-c', STATE_SCRIPT, 'sh', workspace.path, copy], {
    cwd: '/', timeoutMs: TIME_LIMIT_MS, ...(place.signal === undefined ? {} : { signal: place.signal }),
  })
  const words = new Set(listed.stdout.toString('latin1').split('\n'))
  if (words.has('missing')) return { ...NOTHING, notes: ['the .git folder was removed'] }
  if (words.has('replaced')) return { ...NOTHING, notes: ['the .git folder was replaced'] }
  const guestIndex = { ...place, index: copy }
  const conflicts = await listConflicts(guestIndex)
  const operation = nameOperation(words)
  return {
    notes: [...operation === null ? [] : [`${operation} in progress`], ...await noteCommits(workspace, place, base, operation)],
    conflicts,
    forced: await listAdded(guestIndex, place, ['ls-files', '-c', '-i', '-z', '--exclude-standard']),
    submodules: (await listAdded(guestIndex, place, ['ls-files', '-s', '-z'])).filter(isSubmodule).map(pathOf),
  }
}

function nameOperation(words: Set<string>): string | null {
  // While a rebase stops, git keeps a CHERRY_PICK_HEAD too: the rebase is what the user started.
  if (words.has('rebase-apply') && words.has('applying')) return 'am'
  if (words.has('rebase-merge') || words.has('rebase-apply')) return 'rebase'
  if (words.has('MERGE_HEAD')) return 'merge'
  if (words.has('CHERRY_PICK_HEAD')) return 'cherry-pick'
  return words.has('REVERT_HEAD') ? 'revert' : null
}

async function listConflicts(guestIndex: StagePlace): Promise<string[]> {
  const result = await runInPlace(guestIndex, ['git', 'ls-files', '-u', '-z'])
  if (result.exitCode !== 0) return []
  const paths = splitRecords(result.stdout).map((record) => showPath(pathOf(record)))
  return [...new Set(paths)].slice(0, CONFLICTS_MAX)
}

/** Records a listing of the guest's index has and the same listing of ours has not; none when it is unreadable. */
async function listAdded(guestIndex: StagePlace, place: StagePlace, args: string[]): Promise<Buffer[]> {
  const result = await runInPlace(guestIndex, ['git', ...args])
  if (result.exitCode !== 0) return []
  const known = new Set(splitRecords(await stageGit(place, args)).map(pathKey))
  return splitRecords(result.stdout).filter((record) => !known.has(pathKey(record)))
}

/** Of a record `<mode> <id> <stage>\t<path>`. */
function isSubmodule(record: Buffer): boolean {
  return record.subarray(0, 7).toString('latin1') === '160000 '
}

function pathOf(record: Buffer): Buffer {
  return record.subarray(record.indexOf(9) + 1)
}

async function noteCommits(
  workspace: Workspace, place: StagePlace, base: Base, operation: string | null,
): Promise<string[]> {
  const now = await readGuestRefs(workspace, base, place.signal)
  const [then, ...otherThen] = await readTips(place)
  if (now.head === null || then === undefined) return []
  const count = (include: string[], exclude: string[]): Promise<number | null> => countCommits(workspace, place, include, exclude)
  const all = await count([now.head], [then])
  const own = await count([now.head], [then, ...otherThen, ...now.remotes])
  const elsewhere = await count(now.heads, [now.head, then, ...otherThen, ...now.remotes])
  if (all === null || own === null) return ['the history of the .git folder cannot be read']
  const notes: string[] = []
  if (all > own) notes.push(`took in ${all - own} upstream ${plural(all - own)}`)
  // An unfinished operation leaves the branch itself behind: nothing strange.
  if (elsewhere !== null && elsewhere > 0 && operation === null) notes.push(`${elsewhere} ${plural(elsewhere)} on other branches only`)
  return notes
}

function plural(count: number): string {
  return count === 1 ? 'commit' : 'commits'
}

async function readTips(place: StagePlace): Promise<string[]> {
  const result = await place.run(['cat', `${place.gitDir}/${BASE_TIPS}`], { cwd: '/' })
  return result.stdout.toString('latin1').split('\n').filter((line) => /^[0-9a-f]{40,64}$/.test(line))
}

/** Null when the commits cannot be read. Our own git folder looks at the guest's objects. */
async function countCommits(
  workspace: Workspace, place: StagePlace, include: string[], exclude: string[],
): Promise<number | null> {
  if (include.length === 0) return 0
  const result = await place.run(['git', 'rev-list', '--count', '--ignore-missing', '--stdin'], {
    cwd: '/', timeoutMs: TIME_LIMIT_MS,
    env: { ...privateEnvironment({ gitDir: place.gitDir }), GIT_ALTERNATE_OBJECT_DIRECTORIES: `${workspace.path}/.git/objects` },
    stdin: [...new Set(include)].join('\n') + '\n' + [...new Set(exclude)].map((oid) => `^${oid}\n`).join(''),
    ...(place.signal === undefined ? {} : { signal: place.signal }),
  })
  const text = result.stdout.toString('latin1').trim()
  return result.exitCode === 0 && /^\d+$/.test(text) ? Number(text) : null
}
