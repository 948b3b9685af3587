/**
 * Submodules in the guest: a diff holds the commit they are at, not the files in them.
 *
 * Owns: saying so where files in one were changed.
 */
import { BASE_MARKER } from './evidence.js'
import { showPath, splitRecords } from './paths.js'
import { runInPlace, stageGit, type StagePlace } from './stage-place.js'

const SUBMODULES_MAX = 100

/** Remarks on submodules with files changed since the checkpoint. */
export async function noteSubmodules(place: StagePlace): Promise<string[]> {
  const entries = splitRecords(await stageGit(place, ['ls-files', '-s', '-z']))
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
