/**
 * What the guest looked like at the checkpoint, kept in the evidence folder.
 *
 * Owns: the commits its refs named then, to tell later which commits are new and whose they are.
 */
import type { Base } from '../model/run.js'
import { BASE_TIPS, evidenceFolder } from './evidence.js'
import { readGuestRefs } from './guest-refs.js'
import { runChecked, type Workspace } from './workspace.js'

/** Records the refs of the checkpoint. */
export async function recordTips(workspace: Workspace, base: Base, signal?: AbortSignal): Promise<void> {
  const refs = await readGuestRefs(workspace, base, signal)
  const tips = [refs.head ?? base.commit, ...refs.heads, ...refs.remotes]
  await runChecked(workspace, 'recording the checkpoint', ['sh', '-c', 'cat > "$1"', 'sh', `${evidenceFolder(workspace)}/${BASE_TIPS}`], {
    cwd: '/', stdin: `${tips.join('\n')}\n`, ...(signal === undefined ? {} : { signal }),
  })
}
