/** Finds the repository a command is about, without running git. */
import { realpath, stat } from 'node:fs/promises'
import path from 'node:path'
import { Kosa8Error } from '../errors/kosa8-error.js'

/**
 * Absolute path of the top folder of the work tree that `folder` lies in.
 * @throws REPOSITORY_INVALID when there is none.
 */
export async function findRepositoryRoot(folder: string): Promise<string> {
  const start = await realpath(folder).catch(() => {
    throw new Kosa8Error('REPOSITORY_INVALID', `${folder} does not exist`)
  })
  for (let current = start; ; current = path.dirname(current)) {
    if (await exists(path.join(current, '.git'))) return current
    if (current === path.dirname(current)) break
  }
  throw new Kosa8Error('REPOSITORY_INVALID', `${start} is not in a git repository`, {
    hint: 'give one with --repo, or make one with `git init` and a first commit',
  })
}

async function exists(file: string): Promise<boolean> {
  return stat(file).then(() => true, () => false)
}
