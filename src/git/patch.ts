/**
 * The patch of a change, and the proof that it is one.
 *
 * Owns: writing `git diff --binary` to a file, and applying it to a clean index of the base: the same tree must
 * come out, or the evidence is refused.
 */
import path from 'node:path'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { makeFolder } from '../util/make-folder.js'
import { readLine, runGit, tryGit, type GitPlace } from './host-git.js'
import type { Scratch } from './scratch.js'

/** Writes the patch from one tree or commit to another; binary data, full ids and modes included. */
export async function writePatch(
  place: GitPlace, request: { from: string; to: string; file: string; findRenames: boolean; signal?: AbortSignal | undefined },
): Promise<void> {
  await makeFolder(path.dirname(request.file))
  await runGit(place, ['diff-tree', '-r', '-p', '--binary', '--full-index', request.findRenames ? '-M' : '--no-renames',
    '--no-ext-diff', '--no-textconv', '--no-color', request.from, request.to], { outputFile: request.file, signal: request.signal })
}

/**
 * Writes a patch and proves it.
 * @throws Kosa8Error EVIDENCE_REFUSED when the patch, applied to `from`, does not give `to`.
 */
export async function writeProvenPatch(
  scratch: Scratch, request: { from: string; to: string; file: string; signal?: AbortSignal | undefined },
): Promise<void> {
  if (request.from === request.to) return writePatch(scratch.place, { ...request, findRenames: false })
  let words = ''
  // Some changes of kind (a file that becomes a folder another file moved into) apply only without renames.
  for (const findRenames of [true, false]) {
    await writePatch(scratch.place, { ...request, findRenames })
    const outcome = await applyToIndex(scratch, request.from, request.file, request.signal)
    if (outcome.tree === request.to) return
    words = outcome.words
  }
  throw new Kosa8Error('EVIDENCE_REFUSED', `the patch does not give the collected tree when applied to the base: ${words}`)
}

async function applyToIndex(
  scratch: Scratch, tree: string, file: string, signal: AbortSignal | undefined,
): Promise<{ tree: string | null; words: string }> {
  const place = { ...scratch.place, index: path.join(scratch.folder, 'proof.index') }
  await runGit(place, ['read-tree', tree])
  const applied = await tryGit(place, ['apply', '--cached', '--binary', '--whitespace=nowarn', file], { cwd: scratch.folder, signal })
  if (applied.code !== 0) return { tree: null, words: applied.stderr.toString('utf8').slice(-300).trim() }
  return { tree: await readLine(place, ['write-tree']), words: 'another tree came out' }
}
