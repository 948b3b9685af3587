/**
 * What the guest's own `.git` says: commits its refs name and operations left unfinished.
 *
 * Owns: reading them, as remarks only: the diff never depends on them. Git reads that folder's configuration
 * here, so only commands run that start nothing, with everything that could be started switched off.
 */
import type { Base } from '../model/run.js'
import { objectFormatOf } from './evidence.js'
import { privateEnvironment } from './private-git.js'
import type { Workspace } from './workspace.js'

/** Commits named by the guest's refs; everything empty when its `.git` cannot be read. */
export interface GuestRefs {
  head: string | null
  heads: string[]
  remotes: string[]
}

const SCRIPT = `
git rev-parse -q --verify 'HEAD^{commit}' | sed 's/^/HEAD /'
git for-each-ref --count=5000 --format='heads %(objectname)' refs/heads
git for-each-ref --count=5000 --format='remotes %(objectname)' refs/remotes
if [ -f "$GIT_DIR/FETCH_HEAD" ]; then head -n 1000 "$GIT_DIR/FETCH_HEAD" | sed 's/^/remotes /'; fi
`
const TIME_LIMIT_MS = 60_000

/** Reads the guest's refs, at most some thousand of each kind. */
export async function readGuestRefs(workspace: Workspace, base: Base, signal?: AbortSignal): Promise<GuestRefs> {
  const result = await workspace.run(['sh', '-c', SCRIPT], {
    env: privateEnvironment({ gitDir: `${workspace.path}/.git` }), timeoutMs: TIME_LIMIT_MS,
    ...(signal === undefined ? {} : { signal }),
  })
  const length = objectFormatOf(base) === 'sha256' ? 64 : 40
  const line = new RegExp(`^(HEAD|heads|remotes) ([0-9a-f]{${length}})(?![0-9a-f])`)
  const refs: GuestRefs = { head: null, heads: [], remotes: [] }
  for (const text of result.stdout.toString('latin1').split('\n')) {
    const [, kind, oid] = line.exec(text) ?? []
    if (kind === 'HEAD') refs.head = oid!
    else if (kind === 'heads') refs.heads.push(oid!)
    else if (kind === 'remotes') refs.remotes.push(oid!)
  }
  return refs
}
