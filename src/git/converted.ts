/**
 * Files whose bytes on disk may differ from what the index says although nothing was edited.
 *
 * Owns: finding them (line-ending rules, filters, `$Id$`, other encodings) and making a copy of the index forget
 * that it knows them, so that the next look at the tree reads their bytes.
 */
import { runGit, tryGit, type GitPlace } from './host-git.js'
import { joinRecords, pathKey, splitRecords } from './paths.js'
import { placeOf, type Repository } from './repository.js'

const CONVERTING = ['filter', 'ident', 'eol', 'text', 'crlf', 'working-tree-encoding']
const LIST_BYTES_MAX = 512 * 1024 * 1024

/** Drops the cached state of converted files from the index of `place`, a copy of the user's. */
export async function forgetConverted(repository: Repository, place: GitPlace): Promise<void> {
  const entries = splitRecords(await runGit(place, ['ls-files', '-s', '-z'], { outputBytesMax: LIST_BYTES_MAX }))
  const paths = entries.map((entry) => entry.subarray(entry.indexOf(9) + 1))
  const converted = await convertsEverything(repository) ? null : await listConverted(repository, paths)
  const forgotten = converted === null ? entries : entries.filter((_, at) => converted.has(pathKey(paths[at]!)))
  if (forgotten.length === 0) return
  await runGit(place, ['update-index', '-z', '--index-info'], { stdin: joinRecords(forgotten) })
}

async function convertsEverything(repository: Repository): Promise<boolean> {
  const answer = await tryGit(placeOf(repository), ['config', '--get', 'core.autocrlf'])
  return answer.code === 0 && !/^(false|no|off|0)?$/.test(answer.stdout.toString('utf8').trim())
}

async function listConverted(repository: Repository, paths: Buffer[]): Promise<Set<string>> {
  const output = splitRecords(await runGit(placeOf(repository), ['check-attr', '-z', '--stdin', ...CONVERTING], {
    stdin: joinRecords(paths), outputBytesMax: LIST_BYTES_MAX,
  }))
  const converted = new Set<string>()
  for (let at = 0; at + 2 < output.length; at += 3) {
    const value = output[at + 2]!.toString('latin1')
    if (value !== 'unspecified' && value !== 'unset') converted.add(pathKey(output[at]!))
  }
  return converted
}
