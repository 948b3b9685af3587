/**
 * Submodules in the guest: a diff holds the commit they are at, not the files in them.
 *
 * Owns: saying so where files in one were changed.
 */
import { BASE_MARKER } from './evidence.js'
import { runGit, type GitPlace } from './host-git.js'
import { showPath, splitRecords } from './paths.js'
import { LIST_BYTES_MAX, runInPlace, type StagePlace } from './stage-place.js'

const SUBMODULES_MAX = 100

/** Remarks on submodules with files changed since the checkpoint; `tree` lies on the host, in `scratch`. */
export async function noteSubmodules(place: StagePlace, scratch: GitPlace, tree: string): Promise<string[]> {
  const entries = splitRecords(await runGit(scratch, ['ls-tree', '-r', '-z', tree], { outputBytesMax: LIST_BYTES_MAX }))
  const names = entries.filter((entry) => entry.subarray(0, 7).toString('latin1') === '160000 ')
    .map((entry) => showPath(entry.subarray(entry.indexOf(9) + 1))).slice(0, SUBMODULES_MAX)
  const notes: string[] = []
  for (const name of names) {
    const found = await runInPlace(place, [
      'find', `./${name}`, '-name', '.git', '-prune', '-o', '-type', 'f', '-cnewer', `${place.gitDir}/${BASE_MARKER}`, '-print', '-quit',
    ])
    if (found.stdout.length > 0) notes.push(`files changed inside the submodule ${name} are not in the diff, only its commit is`)
  }
  return notes
}
