/**
 * Remarks on the guest's own repository: unfinished operations, commits that are not the approach's.
 *
 * Owns: their words. They explain a diff to its reader and never change it.
 */
import { BASE_TIPS } from './evidence.js'
import { parseRefs, REFS_SCRIPT, type GuestRefs } from './guest-refs.js'
import { showPath, splitRecords } from './paths.js'
import { privateEnvironment } from './private-git.js'
import { runSections } from './sections.js'
import type { StagePlace } from './stage-place.js'

/** What the guest's `.git` says beside the working tree. */
export interface GuestState {
  notes: string[]
  conflicts: string[]
  /** Paths in the guest's index; empty when it is unreadable. */
  indexed: Buffer[]
  /** Those of them that are submodules. */
  submodules: Buffer[]
}

const NOTHING: GuestState = { notes: [], conflicts: [], indexed: [], submodules: [] }

const STATE_SCRIPT = `
g=$GIT_WORK_TREE/.git
if [ ! -d "$g" ] || [ -L "$g" ]; then [ -e "$g" ] && echo replaced || echo missing; end words; exit 0; fi
for f in rebase-merge rebase-apply MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD; do [ -e "$g/$f" ] && echo "$f"; done
[ -e "$g/rebase-apply/applying" ] && echo applying
end words
[ -f "$g/index" ] && [ ! -L "$g/index" ] && GIT_INDEX_FILE="$g/index" git ls-files -s -z; end index
${REFS_SCRIPT}
end refs
cat "$GIT_DIR/${BASE_TIPS}"; end tips
`
const TIME_LIMIT_MS = 60_000
const CONFLICTS_MAX = 1000

/** Looks at the guest's `.git`; where that is missing or unreadable, says so and goes on. */
export async function readGuestState(place: StagePlace): Promise<GuestState> {
  const { sections } = await runSections(place, STATE_SCRIPT, { timeoutMs: TIME_LIMIT_MS })
  const outputOf = (name: string): Buffer => sections.get(name)?.output ?? Buffer.alloc(0)
  const words = new Set(outputOf('words').toString('latin1').split('\n'))
  if (words.has('missing')) return { ...NOTHING, notes: ['the .git folder was removed'] }
  if (words.has('replaced')) return { ...NOTHING, notes: ['the .git folder was replaced'] }
  const entries = sections.get('index')?.exitCode === 0 ? splitRecords(outputOf('index')).map(parseEntry) : []
  const operation = nameOperation(words)
  const commits = await noteCommits(place, parseRefs(outputOf('refs')), parseRefs(outputOf('tips')), operation)
  const unmerged = entries.filter((entry) => entry.stage !== '0').map((entry) => showPath(entry.path))
  return {
    notes: [...operation === null ? [] : [`${operation} in progress`], ...commits],
    conflicts: [...new Set(unmerged)].slice(0, CONFLICTS_MAX),
    indexed: entries.map((entry) => entry.path),
    submodules: entries.filter((entry) => entry.mode === '160000').map((entry) => entry.path),
  }
}

/** A record `<mode> <id> <stage>\t<path>`. */
function parseEntry(record: Buffer): { mode: string; stage: string; path: Buffer } {
  const tab = record.indexOf(9)
  const [mode = '', , stage = '0'] = record.toString('latin1', 0, tab).split(' ')
  return { mode, stage, path: record.subarray(tab + 1) }
}

function nameOperation(words: Set<string>): string | null {
  // While a rebase stops, git keeps a CHERRY_PICK_HEAD too: the rebase is what the user started.
  if (words.has('rebase-apply') && words.has('applying')) return 'am'
  if (words.has('rebase-merge') || words.has('rebase-apply')) return 'rebase'
  if (words.has('MERGE_HEAD')) return 'merge'
  if (words.has('CHERRY_PICK_HEAD')) return 'cherry-pick'
  return words.has('REVERT_HEAD') ? 'revert' : null
}

/** Git counts only where a ref names a commit that none named at the checkpoint. */
async function noteCommits(
  place: StagePlace, now: GuestRefs, then: GuestRefs, operation: string | null,
): Promise<string[]> {
  if (now.head === null || then.head === null) return []
  const upstream = [...then.heads, ...then.remotes, ...now.remotes]
  const isMoved = now.head !== then.head
  const all = isMoved ? await countCommits(place, [now.head], [then.head]) : 0
  const hasUpstream = isMoved && upstream.some((oid) => oid !== then.head)
  const own = hasUpstream ? await countCommits(place, [now.head], [then.head, ...upstream]) : all
  if (all === null || own === null) return ['the history of the .git folder cannot be read']
  const notes: string[] = []
  if (all > own) notes.push(`took in ${all - own} upstream ${plural(all - own)}`)
  // An unfinished operation leaves the branch itself behind: nothing strange.
  const elsewhere = operation === null ? await countCommits(place, now.heads, [now.head, then.head, ...upstream]) : 0
  if (elsewhere !== null && elsewhere > 0) notes.push(`${elsewhere} ${plural(elsewhere)} on other branches only`)
  return notes
}

function plural(count: number): string {
  return count === 1 ? 'commit' : 'commits'
}

/** Null when the commits cannot be read. Our own git folder looks at the guest's objects. */
async function countCommits(place: StagePlace, include: string[], exclude: string[]): Promise<number | null> {
  const excluded = new Set(exclude)
  const wanted = [...new Set(include)].filter((oid) => !excluded.has(oid))
  if (wanted.length === 0) return 0
  const result = await place.run(['git', 'rev-list', '--count', '--ignore-missing', '--stdin'], {
    cwd: '/', timeoutMs: TIME_LIMIT_MS,
    env: { ...privateEnvironment({ gitDir: place.gitDir }), GIT_ALTERNATE_OBJECT_DIRECTORIES: `${place.workTree}/.git/objects` },
    stdin: wanted.join('\n') + '\n' + [...excluded].map((oid) => `^${oid}\n`).join(''),
    ...(place.signal === undefined ? {} : { signal: place.signal }),
  })
  const text = result.stdout.toString('latin1').trim()
  return result.exitCode === 0 && /^\d+$/.test(text) ? Number(text) : null
}
