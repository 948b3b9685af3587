/**
 * What the guest looked like at the checkpoint, kept in the evidence folder.
 *
 * Owns: the commits its refs named then (to tell later which commits are new and whose they are) and the moment
 * from which files count as changed.
 */
import type { Base } from '../model/run.js'
import { BASE_MARKER, BASE_TIPS, evidenceFolder } from './evidence.js'
import { readGuestRefs } from './guest-refs.js'
import { runChecked, type Workspace } from './workspace.js'

/** Records refs and time of the checkpoint. */
export async function recordCheckpoint(workspace: Workspace, base: Base, signal?: AbortSignal): Promise<void> {
  const refs = await readGuestRefs(workspace, base, signal)
  const tips = [refs.head ?? base.commit, ...refs.heads, ...refs.remotes]
  const folder = evidenceFolder(workspace)
  await runChecked(workspace, 'recording the checkpoint', [
    'sh', '-c', 'cat > "$1" && touch "$2"', 'sh', `${folder}/${BASE_TIPS}`, `${folder}/${BASE_MARKER}`,
  ], { cwd: '/', stdin: `${tips.join('\n')}\n`, ...(signal === undefined ? {} : { signal }) })
}
