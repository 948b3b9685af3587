/**
 * The evidence of a trial: what changed in the guest's working tree since the checkpoint.
 *
 * Owns: `collectDiff`, the steps from looking at the guest to a commit, a ref and a proven patch on the host.
 * In the guest only our evidence folder is used; on the host everything is computed from checked objects.
 */
import type { FileChange, OmittedPath, TrialDiff } from '../model/diff.js'
import type { Base } from '../model/run.js'
import { listChanges } from './changes.js'
import { makeCommit } from './commit.js'
import { objectFormatOf, openEvidence } from './evidence.js'
import { readGuestState } from './guest-state.js'
import { findIgnored, listIgnored, listSpecial } from './ignored.js'
import { writeProvenPatch } from './patch.js'
import { refName, setRef, type Repository } from './repository.js'
import { keepCommit, withScratch } from './scratch.js'
import { checkObjectId, stageWorkingTree, type StageLimits } from './stage.js'
import { noteSubmodules } from './submodules.js'
import { receiveTree } from './transfer.js'
import type { Workspace } from './workspace.js'

/** Which trial a diff belongs to, and where its patch goes. */
export interface CollectOptions {
  run: string
  approach: string
  label: string
  repeat: number
  /** Absolute path of the patch on the host, and the same as the result document names it. */
  patchFile: string
  patch: string
  limits?: Partial<StageLimits>
  /** True: new and changed files that are ignored are taken in too, within the limits. */
  includeIgnored?: boolean
  signal?: AbortSignal
}

/** Bounds of one trial's changes. */
export const COLLECT_LIMITS: StageLimits = {
  fileBytesMax: 32 * 1024 * 1024, totalBytesMax: 256 * 1024 * 1024, entriesMax: 20_000,
}

/**
 * Collects a trial's changes and keeps them as `refs/kosa8/<run>/<label>/<repeat>`, one commit on top of the base.
 * Collecting the same state again gives the same commit.
 * @throws Kosa8Error EVIDENCE_REFUSED, GUEST_COMMAND_FAILED, or what ended the connection to the guest.
 */
export async function collectDiff(
  workspace: Workspace, repository: Repository, base: Base, options: CollectOptions,
): Promise<TrialDiff> {
  const { signal } = options
  const limits = { ...COLLECT_LIMITS, ...options.limits }
  const ref = await refName(options.run, options.label, String(options.repeat))
  const place = await openEvidence(workspace, base, 'collect.index', signal)
  const state = await readGuestState(workspace, place, base)
  const staged = await stageWorkingTree(place, limits, {
    forced: [...state.forced, ...options.includeIgnored === true ? await findIgnored(place) : []], submodules: state.submodules,
  })
  const tree = checkObjectId(staged.tree, objectFormatOf(base))
  const left = [...staged.omitted, ...await listSpecial(place), ...await listIgnored(place)]
  const submodules = await noteSubmodules(place)
  return withScratch(repository, async (scratch) => {
    await receiveTree(workspace, scratch, { base, tree, limits, signal })
    await writeProvenPatch(scratch, { from: base.tree, to: tree, file: options.patchFile, signal })
    const changes = await listChanges(scratch.place, base.tree, tree, signal)
    const commit = await makeCommit(scratch.place, tree, base.commit, describe(options))
    await keepCommit(scratch, repository, commit, [base.commit], signal)
    await setRef(repository, ref, commit)
    return {
      ...countChanges(changes), tree, commit, ref, patch: options.patch, changes,
      omitted: withoutCollected(left, changes), notes: [...staged.notes, ...state.notes, ...submodules], conflicts: state.conflicts,
    }
  })
}

function describe(options: CollectOptions): string {
  return `kosa8: ${options.label}, repeat ${options.repeat}\n\n`
    + `Run: ${options.run}\nApproach: ${options.approach}\nRepeat: ${options.repeat}\n`
}

/** Totals over changed paths; binary files count as files only. */
export function countChanges(changes: readonly FileChange[]): Pick<TrialDiff, 'files' | 'insertions' | 'deletions'> {
  const sum = (of: (change: FileChange) => number | null): number => changes.reduce((total, change) => total + (of(change) ?? 0), 0)
  return { files: changes.length, insertions: sum((change) => change.insertions), deletions: sum((change) => change.deletions) }
}

const OMITTED_MAX = 500

/** A path that is in the diff after all (ignored, yet added on purpose) was not left out. */
function withoutCollected(left: OmittedPath[], changes: readonly FileChange[]): OmittedPath[] {
  const collected = new Set(changes.filter((change) => change.status !== 'D').map((change) => change.path))
  const entries = left.filter((entry) => !collected.has(entry.path))
  const rest = entries.splice(OMITTED_MAX)
  if (rest.length === 0) return entries
  return [...entries, { path: '…', bytes: rest.reduce((sum, entry) => sum + entry.bytes, 0), reason: `${rest.length} more` }]
}
