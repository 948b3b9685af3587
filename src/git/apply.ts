/**
 * Brings a result into a branch of the user's, without touching the working tree.
 *
 * Owns: `applyResult`. The change is merged three-way in a scratch repository, so that no merge driver, filter or
 * hook takes part; only when that is clean do objects and the branch enter the user's repository.
 */
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { Base } from '../model/run.js'
import { findCommit, readMessage, treeOf } from './compare-results.js'
import { IDENTITY, identityEnvironment, makeCommit } from './commit.js'
import { gitError, readLine, runGit, tryGit, userGit } from './host-git.js'
import { showPath, splitRecords } from './paths.js'
import { placeOf, readHead, type Repository } from './repository.js'
import { keepCommit, withScratch, type Scratch } from './scratch.js'

/** What to apply, and where. */
export interface ApplyRequest {
  /** The result commit and the base it was made on. */
  commit: string
  base: Base
  /** Branch to make, or to add to when it exists. Defaults to `fallbackBranch`, with a number when taken. */
  branch?: string
  /** `kosa8/<run>/<approach>`. */
  fallbackBranch: string
  signal?: AbortSignal
}

/**
 * Puts the change of a result as one commit on top of the user's HEAD (or of the named branch, where it exists).
 * @throws Kosa8Error APPLY_CONFLICT with the files in `details.files`, nothing changed; REPOSITORY_DIRTY when the
 *   branch is checked out somewhere; USAGE for a name that is no branch name.
 */
export async function applyResult(
  repository: Repository, request: ApplyRequest,
): Promise<{ branch: string; commit: string }> {
  const target = await chooseBranch(repository, request)
  const resultTree = await treeOf(repository, request.commit)
  return withScratch(repository, async (scratch) => {
    const tree = await mergeTrees(scratch, {
      base: request.base.tree, ours: await treeOf(repository, target.parent), theirs: resultTree, signal: request.signal,
    })
    const commit = await commitAsUser(scratch, repository, { tree, parent: target.parent, message: await readMessage(repository, request.commit) })
    await keepCommit(scratch, repository, commit, [target.parent], request.signal)
    const ref = `refs/heads/${target.branch}`
    await runGit(placeOf(repository), ['update-ref', '--no-deref', '-m', 'kosa8 apply', ref, commit, target.before])
    return { branch: target.branch, commit }
  })
}

interface Target {
  branch: string
  /** Commit the change goes on top of. */
  parent: string
  /** What the branch points at now; empty text when it does not exist. */
  before: string
}

async function chooseBranch(repository: Repository, request: ApplyRequest): Promise<Target> {
  const head = (await readHead(repository)).commit
  if (request.branch === undefined) return { branch: await freeName(repository, request.fallbackBranch), parent: head, before: '' }
  await checkName(request.branch)
  const existing = await findCommit(repository, `refs/heads/${request.branch}`)
  if (existing === null) return { branch: request.branch, parent: head, before: '' }
  await refuseCheckedOut(repository, request.branch)
  return { branch: request.branch, parent: existing, before: existing }
}

async function checkName(branch: string): Promise<void> {
  const checked = await tryGit({ kind: 'private', gitDir: '/nonexistent' }, ['check-ref-format', '--branch', branch])
  if (checked.code === 0 && !branch.startsWith('-') && !branch.startsWith('@{')) return
  throw new Kosa8Error('USAGE', `${branch} cannot be the name of a branch`, { hint: 'use letters, digits, dashes and slashes' })
}

async function freeName(repository: Repository, wanted: string): Promise<string> {
  await checkName(wanted)
  const taken = new Set((await runGit(placeOf(repository), ['for-each-ref', '--format=%(refname)', 'refs/heads']))
    .toString('utf8').split('\n'))
  for (let number = 1; ; number++) {
    const name = number === 1 ? wanted : `${wanted}-${number}`
    if (!taken.has(`refs/heads/${name}`)) return name
  }
}

async function refuseCheckedOut(repository: Repository, branch: string): Promise<void> {
  const list = await userGit(repository.topLevel, repository.topLevel).raw(['worktree', 'list', '--porcelain'])
  if (!list.split('\n').includes(`branch refs/heads/${branch}`)) return
  throw new Kosa8Error('REPOSITORY_DIRTY', `the branch ${branch} is checked out, and kosa8 leaves working trees alone`, {
    hint: 'name a new branch with --branch and merge it yourself',
  })
}

interface Merge {
  base: string
  ours: string
  theirs: string
  signal?: AbortSignal | undefined
}

/** Merges trees by way of commits made for the purpose, since older gits take no base of their own choosing. */
async function mergeTrees(scratch: Scratch, merge: Merge): Promise<string> {
  const root = await rootCommit(scratch, merge.base)
  const ours = await makeCommit(scratch.place, merge.ours, root, 'ours\n')
  const theirs = await makeCommit(scratch.place, merge.theirs, root, 'theirs\n')
  const args = ['merge-tree', '--write-tree', '-z', '--name-only', '--no-messages', ours, theirs]
  const merged = await tryGit(scratch.place, args, { signal: merge.signal, outputBytesMax: 64 * 1024 * 1024 })
  const records = splitRecords(merged.stdout)
  if (merged.code === 0) return records[0]!.toString('latin1')
  if (merged.code !== 1) throw explainMerge(gitError(args, merged))
  const files = records.slice(1).map(showPath).filter((file) => file !== '')
  const named = files.slice(0, 10).join(', ') + (files.length > 10 ? ', …' : '')
  throw new Kosa8Error('APPLY_CONFLICT', `the change does not fit onto the branch: ${files.length} files in conflict: ${named}`, {
    hint: 'apply it on the commit the run started from, or take the patch and merge by hand', details: { files },
  })
}

function explainMerge(error: Kosa8Error): Kosa8Error {
  if (!/usage: git merge-tree|unknown option/.test(error.message)) return error
  return new Kosa8Error('PROGRAM_MISSING', 'git is too old to merge without a working tree', {
    hint: 'install git 2.38 or newer, or apply the patch of the run with `git apply --3way`', cause: error,
  })
}

async function rootCommit(scratch: Scratch, tree: string): Promise<string> {
  return readLine({ ...scratch.place, env: identityEnvironment('@0 +0000') }, ['commit-tree', tree, '-m', 'base'])
}

/** The commit in the user's own name, where git knows it. */
async function commitAsUser(
  scratch: Scratch, repository: Repository, commit: { tree: string; parent: string; message: string },
): Promise<string> {
  const who = async (key: string, fallback: string): Promise<string> => {
    const answer = await tryGit(placeOf(repository), ['config', '--get', key])
    return answer.stdout.toString('utf8').trim() || fallback
  }
  const [name, email] = [await who('user.name', IDENTITY.name), await who('user.email', IDENTITY.email)]
  const env = { GIT_AUTHOR_NAME: name, GIT_AUTHOR_EMAIL: email, GIT_COMMITTER_NAME: name, GIT_COMMITTER_EMAIL: email }
  return readLine({ ...scratch.place, env }, ['commit-tree', commit.tree, '-p', commit.parent, '-F', '-'], { stdin: `${commit.message}\n` })
}
