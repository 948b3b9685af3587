/**
 * The user's repository on the host: finding it, refusing what cannot be used, and our refs in it.
 *
 * Owns: `openRepository` and `refs/kosa8/…`. Nothing else of the user's repository is ever written by us,
 * objects (see scratch.ts) and the branch of an explicit `apply` (see apply.ts) apart.
 */
import { realpath } from 'node:fs/promises'
import path from 'node:path'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { readLine, runGit, tryGit, userGit, type GitPlace } from './host-git.js'

/** A repository that was found fit for use. */
export interface Repository {
  /** Absolute path of the working tree. */
  topLevel: string
  /** Absolute path of this working tree's git folder; differs from `commonDir` in a linked worktree. */
  gitDir: string
  commonDir: string
  objectFormat: string
}

/** The repository with the user's own settings, as far as they start nothing. */
export function placeOf(repository: Repository): GitPlace {
  return { kind: 'user', gitDir: repository.gitDir, workTree: repository.topLevel }
}

/**
 * Finds the repository that `directory` lies in.
 * @throws Kosa8Error REPOSITORY_INVALID: no folder, no repository, bare, without a commit, or another user's
 *   and not readable.
 */
export async function openRepository(directory: string): Promise<Repository> {
  const folder = await realpath(directory).catch((cause: unknown) => {
    throw invalid(`${directory} does not exist`, 'name a folder of a git repository', cause)
  })
  const [isBare, isInside, gitDir, commonDir, format] = await describe(folder)
  if (isBare === 'true') throw invalid(`${directory} is a bare repository`, 'name a repository with a working tree')
  if (isInside !== 'true') throw invalid(`${directory} lies inside a .git folder`, 'name the working tree instead')
  const place: GitPlace = { kind: 'user', gitDir: gitDir! }
  const common = path.resolve(folder, commonDir!)
  const topLevel = await findTopLevel(folder, gitDir!)
  const head = await tryGit(place, ['rev-parse', '--verify', '-q', 'HEAD^{commit}'])
  if (head.code !== 0) throw invalid(`the repository ${topLevel} has no commit yet`, 'make a first commit')
  return { topLevel, gitDir: gitDir!, commonDir: common, objectFormat: format ?? 'sha1' }
}

const QUESTIONS = ['rev-parse', '--is-bare-repository', '--is-inside-work-tree', '--absolute-git-dir',
  '--git-common-dir', '--show-object-format']

/** Asks git; where only the ownership check stands in the way, asks again with that one path allowed. */
async function describe(folder: string): Promise<string[]> {
  try {
    return (await userGit(folder, null).raw(QUESTIONS)).trim().split('\n')
  } catch (error) {
    const owned = ownershipPath(error, folder)
    if (owned === null) throw explain(error, folder)
    try {
      return (await userGit(folder, owned).raw(QUESTIONS)).trim().split('\n')
    } catch (second) {
      throw explain(second, folder)
    }
  }
}

/** The path git's ownership check names, when it is this folder or one above it. */
function ownershipPath(error: unknown, folder: string): string | null {
  const match = /(?:dubious ownership in repository at|unsafe repository \() ?'([^']+)'/.exec(messageOf(error))
  const owned = match?.[1]
  if (owned === undefined) return null
  return folder === owned || folder.startsWith(`${owned}/`) ? owned : null
}

function explain(error: unknown, folder: string): Kosa8Error {
  if (Kosa8Error.isInstance(error)) return error
  const words = messageOf(error)
  if (/dubious ownership|unsafe repository/.test(words)) {
    return invalid(`the repository at ${folder} belongs to another user and git refuses to read it`,
      'run kosa8 as the owner of the repository', error)
  }
  if (/not a git repository/.test(words)) {
    return invalid(`${folder} is not in a git repository`, 'run `git init` there, or name another folder with --repo', error)
  }
  if (/permission denied/i.test(words)) {
    return invalid(`the repository at ${folder} cannot be read: permission denied`, 'run kosa8 as a user who may read it', error)
  }
  return invalid(`git cannot read the repository at ${folder}: ${words.trim().split('\n')[0] ?? ''}`,
    'run `git status` there to see what is wrong', error)
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

async function findTopLevel(folder: string, gitDir: string): Promise<string> {
  // With GIT_DIR alone git takes the current folder for the top; so it is asked in the tree, without one.
  const safe = await userGit(folder, null).raw(['rev-parse', '--show-toplevel']).catch(async (error: unknown) => {
    return userGit(folder, ownershipPath(error, folder) ?? path.dirname(gitDir)).raw(['rev-parse', '--show-toplevel'])
  })
  return safe.replace(/\n$/, '')
}

function invalid(message: string, hint: string, cause?: unknown): Kosa8Error {
  return new Kosa8Error('REPOSITORY_INVALID', message, { hint, cause })
}

/**
 * Name of the ref that holds a result, or a run's base.
 * @throws Kosa8Error USAGE for a label git cannot hold in a ref.
 */
export async function refName(run: string, ...rest: string[]): Promise<string> {
  const name = ['refs', 'kosa8', run, ...rest].join('/')
  const parts = [run, ...rest]
  const isOurs = parts.every((part) => part !== '' && !part.includes('/'))
  const checked = isOurs ? await tryGit({ kind: 'private', gitDir: '/nonexistent' }, ['check-ref-format', name]) : null
  if (checked?.code !== 0) {
    throw new Kosa8Error('USAGE', `git cannot keep a ref named ${name}`, {
      hint: 'use letters, digits, dashes and underscores in names and matrix values',
    })
  }
  return name
}

/** Last part of the ref of a run's base; no approach can have this name. */
export const BASE_REF = '_base'

/** Points one of our refs at a commit, whatever it pointed at before. */
export async function setRef(repository: Repository, name: string, commit: string): Promise<void> {
  await runGit(placeOf(repository), ['update-ref', '--no-deref', name, commit])
}

/** Refs of a run: name and commit. */
export async function listRunRefs(repository: Repository, run: string): Promise<{ name: string; commit: string }[]> {
  await refName(run)
  const output = await runGit(placeOf(repository), ['for-each-ref', '--format=%(objectname) %(refname)', `refs/kosa8/${run}/`])
  return output.toString('utf8').split('\n').filter((line) => line !== '').map((line) => {
    const [commit, ...name] = line.split(' ')
    return { commit: commit!, name: name.join(' ') }
  })
}

/**
 * Removes every ref of a run; git's own housekeeping takes the objects later.
 * @returns how many there were.
 */
export async function removeRunRefs(repository: Repository, run: string): Promise<number> {
  const refs = await listRunRefs(repository, run)
  if (refs.length === 0) return 0
  const commands = refs.map(({ name, commit }) => `delete ${name} ${commit}\n`).join('')
  await runGit(placeOf(repository), ['update-ref', '--no-deref', '--stdin'], { stdin: commands })
  return refs.length
}

/** Commit HEAD is at, and the branch it is on; null when detached. */
export async function readHead(repository: Repository): Promise<{ commit: string; branch: string | null }> {
  const place = placeOf(repository)
  const commit = await readLine(place, ['rev-parse', '--verify', 'HEAD^{commit}'])
  const symbolic = await tryGit(place, ['symbolic-ref', '-q', 'HEAD'])
  const branch = symbolic.code === 0 ? symbolic.stdout.toString('utf8').trim().replace(/^refs\/heads\//, '') : null
  return { commit, branch }
}
