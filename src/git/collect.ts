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
import { describeIgnored, findIgnored, LEFT_OUT_SCRIPT, listSpecial } from './ignored.js'
import { runGit } from './host-git.js'
import { writeProvenPatch } from './patch.js'
import { pathKey, pathOfKey, splitRecords } from './paths.js'
import { placeOf, refName, setRef, type Repository } from './repository.js'
import { readScan, SCAN_SCRIPT } from './scan.js'
import { keepCommit, withScratch } from './scratch.js'
import { checkObjectId, stageScan, type StageLimits } from './stage.js'
import { LIST_BYTES_MAX } from './stage-place.js'
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
  const evidence = await openEvidence(workspace, base, 'collect.index', { script: SCAN_SCRIPT + LEFT_OUT_SCRIPT, signal })
  const { place } = evidence
  const scan = readScan(evidence.result)
  const state = await readGuestState(place)
  const basePaths = await listPaths(repository, base.tree)
  const isNew = (path: Buffer): boolean => !basePaths.has(pathKey(path))
  const ignored = await findIgnored(place, evidence.result)
  // New files in the guest's index are there on purpose, ignored or not.
  const forced = [...state.indexed.filter(isNew), ...options.includeIgnored === true ? ignored.files.map(({ key }) => pathOfKey(key)) : []]
  const staged = await stageScan(place, scan, limits, { forced, submodules: state.submodules.filter(isNew) })
  const tree = checkObjectId(staged.tree, objectFormatOf(base))
  const left = [
    ...staged.omitted, ...await listSpecial(place, evidence.result), ...await describeIgnored(place, ignored, staged.added),
  ]
  return withScratch(repository, async (scratch) => {
    await receiveTree(workspace, evidence, scratch, { base, tree, limits })
    const submodules = await noteSubmodules(place, scratch.place, tree)
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

async function listPaths(repository: Repository, tree: string): Promise<Set<string>> {
  const list = await runGit(placeOf(repository), ['ls-tree', '-r', '-z', '--name-only', tree], { outputBytesMax: LIST_BYTES_MAX })
  return new Set(splitRecords(list).map(pathKey))
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

/**
 * A path that is in the diff after all (ignored, yet added on purpose) was not left out. Ordered by path: a folder lists
 * its files as its file system likes, and two trials that left out the same are to say the same.
 */
function withoutCollected(left: OmittedPath[], changes: readonly FileChange[]): OmittedPath[] {
  const collected = new Set(changes.filter((change) => change.status !== 'D').map((change) => change.path))
  const entries = left.filter((entry) => !collected.has(entry.path)).sort((a, b) => a.path < b.path ? -1 : Number(a.path > b.path))
  const rest = entries.splice(OMITTED_MAX)
  if (rest.length === 0) return entries
  return [...entries, { path: '…', bytes: rest.reduce((sum, entry) => sum + entry.bytes, 0), reason: `${rest.length} more` }]
}
