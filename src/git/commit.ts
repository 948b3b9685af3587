/**
 * Commits of our own.
 */
import { readLine, type GitPlace } from './host-git.js'

/** Who our commits are by. */
export const IDENTITY = { name: 'kosa8', email: 'kosa8@localhost' } as const

/** Makes a commit of ours. Its dates are its parent's, so that the same content gives the same commit. */
export async function makeCommit(place: GitPlace, tree: string, parent: string, message: string): Promise<string> {
  const date = await readLine(place, ['show', '-s', '--no-show-signature', '--format=@%ct +0000', parent])
  return readLine({ ...place, env: { ...place.env, ...identityEnvironment(date) } },
    ['commit-tree', tree, '-p', parent, '-F', '-'], { stdin: message })
}

/** Variables that make git commit in our name. */
export function identityEnvironment(date: string): Record<string, string> {
  return {
    GIT_AUTHOR_NAME: IDENTITY.name, GIT_AUTHOR_EMAIL: IDENTITY.email, GIT_AUTHOR_DATE: date,
    GIT_COMMITTER_NAME: IDENTITY.name, GIT_COMMITTER_EMAIL: IDENTITY.email, GIT_COMMITTER_DATE: date,
  }
}
