/**
 * The base as it is at the checkpoint, after setup may have changed files.
 *
 * Owns: `captureBase`. Where the working tree differs from what was installed, a new base commit on top of the
 * old one is made and kept in the user's repository.
 */
import type { Base } from '../model/run.js'
import { makeCommit } from './commit.js'
import { BASE_INDEX, BASE_MARKER, BASE_TIPS, openEvidence, type Evidence } from './evidence.js'
import { REFS_SCRIPT } from './guest-refs.js'
import { runGit } from './host-git.js'
import { privateEnvironment } from './private-git.js'
import { BASE_REF, refName, setRef, type Repository } from './repository.js'
import { keepCommit, withScratch } from './scratch.js'
import { readScan, SCAN_SCRIPT } from './scan.js'
import { runSections } from './sections.js'
import { stageScan, type StageLimits } from './stage.js'
import { receiveTree, type TransferLimits } from './transfer.js'
import { commandError, runChecked, type Workspace } from './workspace.js'

const CAPTURE_LIMITS: StageLimits & TransferLimits = {
  fileBytesMax: 256 * 1024 * 1024, totalBytesMax: 1024 * 1024 * 1024, entriesMax: 100_000,
}

/** Folder in the evidence folder for the record of the checkpoint, until it replaces the one before. */
const NEXT = 'next'
// Taken before the look at the tree: what changes while we look counts as changed later.
const MARK_SCRIPT = `
: > ${NEXT}/${BASE_MARKER} || exit 1
`
const RECORD_SCRIPT = `
cd "$GIT_DIR/${NEXT}" || exit 1
{ printf 'base %s\\n' "$1"
${REFS_SCRIPT}
} > ${BASE_TIPS}
mv -f ${BASE_INDEX} ${BASE_MARKER} ${BASE_TIPS} ..
`
const RECORD_TIME_LIMIT_MS = 60_000

/**
 * Fixes the base of a run at the checkpoint and keeps it as `refs/kosa8/<run>/_base`.
 * @returns the base, the same as before when no file changed, and remarks.
 */
export async function captureBase(
  workspace: Workspace, repository: Repository, installed: Base, options: { run: string; signal?: AbortSignal },
): Promise<{ base: Base; notes: string[] }> {
  const ref = await refName(options.run, BASE_REF)
  const evidence = await openEvidence(workspace, installed, `${NEXT}/${BASE_INDEX}`, {
    script: MARK_SCRIPT + SCAN_SCRIPT, signal: options.signal,
  })
  const staged = await stageScan(evidence.place, readScan(evidence.result), CAPTURE_LIMITS)
  const base = staged.tree === installed.tree
    ? installed
    : await bringBase(workspace, evidence, repository, installed, staged.tree)
  await setRef(repository, ref, base.commit)
  const recorded = await runSections(evidence.place, RECORD_SCRIPT, { args: [base.commit], timeoutMs: RECORD_TIME_LIMIT_MS })
  if (recorded.exitCode !== 0) throw commandError('recording the checkpoint', recorded.exitCode, recorded.stderr)
  const omitted = staged.omitted.map(({ path, reason }) => `not in the base: ${path} (${reason})`)
  return { base, notes: [...staged.notes, ...omitted] }
}

async function bringBase(
  workspace: Workspace, evidence: Evidence, repository: Repository, installed: Base, tree: string,
): Promise<Base> {
  const { gitDir, signal } = evidence.place
  return withScratch(repository, async (scratch) => {
    await receiveTree(workspace, evidence, scratch, { base: installed, tree, limits: CAPTURE_LIMITS })
    const commit = await makeCommit(scratch.place, tree, installed.commit, 'kosa8: state at the checkpoint\n')
    await keepCommit(scratch, repository, commit, [installed.commit], signal)
    // The guest gets the commit too: trials pack what is new since then.
    const content = await runGit(scratch.place, ['cat-file', 'commit', commit])
    await runChecked(workspace, 'storing the base', ['git', 'hash-object', '-t', 'commit', '-w', '--stdin'], {
      cwd: '/', stdin: content, env: privateEnvironment({ gitDir }),
    })
    return { commit, tree }
  })
}
