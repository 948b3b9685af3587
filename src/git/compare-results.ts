/**
 * Results compared with each other, from the commits in the user's repository.
 *
 * Owns: `diffBetween` for `kosa8 diff RUN A [B]`, and which files several results touch.
 */
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { FileChange } from '../model/diff.js'
import { listChanges } from './changes.js'
import { readLine, tryGit } from './host-git.js'
import { writePatch } from './patch.js'
import { placeOf, type Repository } from './repository.js'
import { withScratch } from './scratch.js'

/** A patch with its summary. */
export interface CommitDiff {
  changes: FileChange[]
  /** Text of the patch; binary data included. */
  patch: Buffer
}

/**
 * The difference from one commit to another, with no setting or attribute taking part.
 * @throws Kosa8Error RUN_UNKNOWN when a commit is not in the repository any more.
 */
export async function diffBetween(
  repository: Repository, from: string, to: string, options: { signal?: AbortSignal } = {},
): Promise<CommitDiff> {
  const [fromTree, toTree] = [await treeOf(repository, from), await treeOf(repository, to)]
  return withScratch(repository, async (scratch) => {
    const file = path.join(scratch.folder, 'patch')
    await writePatch(scratch.place, { from: fromTree, to: toTree, file, findRenames: true, signal: options.signal })
    return { changes: await listChanges(scratch.place, fromTree, toTree, options.signal), patch: await readFile(file) }
  })
}

/**
 * Tree of a commit.
 * @throws Kosa8Error RUN_UNKNOWN when it is not in the repository any more.
 */
export async function treeOf(repository: Repository, commit: string): Promise<string> {
  const found = await tryGit(placeOf(repository), ['rev-parse', '--verify', '-q', '--end-of-options', `${commit}^{tree}`])
  if (found.code === 0) return found.stdout.toString('latin1').trim()
  throw new Kosa8Error('RUN_UNKNOWN', `the commit ${commit} is not in the repository ${repository.topLevel}`, {
    hint: 'its run may have been removed; `kosa8 runs` lists those that are there',
  })
}

/** Paths that more than one result changes, with the labels of those results. Pure. */
export function findOverlap(results: readonly { label: string; changes: readonly FileChange[] }[]): Map<string, string[]> {
  const touched = new Map<string, Set<string>>()
  for (const { label, changes } of results) {
    for (const change of changes) {
      for (const name of change.oldPath === undefined ? [change.path] : [change.path, change.oldPath]) {
        touched.set(name, (touched.get(name) ?? new Set()).add(label))
      }
    }
  }
  return new Map([...touched].filter(([, labels]) => labels.size > 1).map(([name, labels]) => [name, [...labels]]))
}

/** Commit a ref or name stands for; null when there is none. */
export async function findCommit(repository: Repository, name: string): Promise<string | null> {
  const found = await tryGit(placeOf(repository), ['rev-parse', '--verify', '-q', '--end-of-options', `${name}^{commit}`])
  return found.code === 0 ? found.stdout.toString('latin1').trim() : null
}

/** Message of a commit. */
export function readMessage(repository: Repository, commit: string): Promise<string> {
  return readLine(placeOf(repository), ['show', '-s', '--no-show-signature', '--format=%B', commit])
}
