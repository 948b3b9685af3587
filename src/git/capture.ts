/**
 * The base as it is at the checkpoint, after setup may have changed files.
 *
 * Owns: `captureBase`. Where the working tree differs from what was installed, a new base commit on top of the
 * old one is made and kept in the user's repository.
 */
import type { Base } from '../model/run.js'
import { makeCommit } from './commit.js'
import { recordTips } from './checkpoint-tips.js'
import { BASE_INDEX, BASE_MARKER, openEvidence } from './evidence.js'
import { runGit } from './host-git.js'
import { privateEnvironment } from './private-git.js'
import { BASE_REF, refName, setRef, type Repository } from './repository.js'
import { keepCommit, withScratch } from './scratch.js'
import { stageWorkingTree, type StageLimits } from './stage.js'
import { receiveTree, type TransferLimits } from './transfer.js'
import { runChecked, type Workspace } from './workspace.js'

const CAPTURE_LIMITS: StageLimits & TransferLimits = {
  fileBytesMax: 256 * 1024 * 1024, totalBytesMax: 1024 * 1024 * 1024, entriesMax: 100_000,
}

/**
 * Fixes the base of a run at the checkpoint and keeps it as `refs/kosa8/<run>/_base`.
 * @returns the base, the same as before when no file changed, and remarks.
 */
export async function captureBase(
  workspace: Workspace, repository: Repository, installed: Base, options: { run: string; signal?: AbortSignal },
): Promise<{ base: Base; notes: string[] }> {
  const ref = await refName(options.run, BASE_REF)
  const place = await openEvidence(workspace, installed, 'capture.index', options.signal)
  // Taken before the look at the tree: what changes while we look counts as changed later.
  const marker = `${place.gitDir}/capture.marker`
  await runChecked(workspace, 'noting the time', ['touch', marker], { cwd: '/' })
  const staged = await stageWorkingTree(place, CAPTURE_LIMITS)
  const base = staged.tree === installed.tree
    ? installed
    : await bringBase(workspace, repository, installed, staged.tree, options.signal)
  await setRef(repository, ref, base.commit)
  await recordTips(workspace, base, options.signal)
  await runChecked(workspace, 'recording the checkpoint', [
    'sh', '-c', 'mv -f "$1" "$2" && mv -f "$3" "$4"', 'sh',
    marker, `${place.gitDir}/${BASE_MARKER}`, place.index, `${place.gitDir}/${BASE_INDEX}`,
  ], { cwd: '/' })
  const omitted = staged.omitted.map(({ path, reason }) => `not in the base: ${path} (${reason})`)
  return { base, notes: [...staged.notes, ...omitted] }
}

async function bringBase(
  workspace: Workspace, repository: Repository, installed: Base, tree: string, signal: AbortSignal | undefined,
): Promise<Base> {
  return withScratch(repository, async (scratch) => {
    await receiveTree(workspace, scratch, { base: installed, tree, limits: CAPTURE_LIMITS, signal })
    const commit = await makeCommit(scratch.place, tree, installed.commit, 'kosa8: state at the checkpoint\n')
    await keepCommit(scratch, repository, commit, [installed.commit], signal)
    // The guest gets the commit too: trials pack what is new since then.
    const content = await runGit(scratch.place, ['cat-file', 'commit', commit])
    await runChecked(workspace, 'storing the base', ['git', 'hash-object', '-t', 'commit', '-w', '--stdin'], {
      cwd: '/', stdin: content, env: privateEnvironment({ gitDir: `${workspace.stateDirectory}/evidence` }),
    })
    return { commit, tree }
  })
}
