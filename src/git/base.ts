/**
 * The state a run starts from, taken from the user's repository: HEAD, and by default the uncommitted work.
 *
 * Owns: `prepareBase`. Uncommitted and untracked files become one commit on top of HEAD, made with a copy of
 * the index and objects of its own. Files are taken byte by byte as they lie on disk: no filter of the
 * repository is started, so a file that git-lfs or a line-ending rule converts is in the base as the user sees it.
 */
import { readFile, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import path from 'node:path'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { Base } from '../model/run.js'
import { makeCommit } from './commit.js'
import { forgetConverted } from './converted.js'
import { hostRun, readLine, runGit, tryGit, type GitPlace } from './host-git.js'
import { FULL_HISTORY_BYTES_MAX, planHistory, type HistoryPlan } from './history.js'
import { placeOf, readHead, type Repository } from './repository.js'
import { copyIfThere, keepCommit, withScratch, type Scratch } from './scratch.js'
import { stageWorkingTree, type StageLimits } from './stage.js'

/** A base in the user's repository, and what a guest needs beside the objects. */
export interface PreparedBase {
  /** Commit and branch the user's HEAD is at; branch null when detached. */
  head: string
  /** Tree of `head`. */
  headTree: string
  branch: string | null
  base: Base
  /** True when the base holds more than HEAD does. */
  isDirty: boolean
  /** Remarks for the report, e.g. files that were too large. */
  notes: string[]
  history: HistoryPlan
  /** Ignore rules outside the tree: the user's own file and `info/exclude`. */
  excludes: string
  /** Settings a guest's `.git/config` gets: name and mail, remotes without credentials. */
  settings: [key: string, value: string][]
}

/** Bounds of uncommitted work: a base is uploaded once, so it may be larger than a trial's changes. */
const BASE_LIMITS: StageLimits = {
  fileBytesMax: 256 * 1024 * 1024, totalBytesMax: 1024 * 1024 * 1024, entriesMax: 100_000,
}

/**
 * Fixes the base of a run. Neither index, working tree, refs, configuration nor hooks of the user's
 * repository change; objects may be added. `fullHistoryBytesMax`: see history.ts.
 * @throws Kosa8Error REPOSITORY_INVALID when the repository cannot be written to.
 */
export async function prepareBase(
  repository: Repository,
  options: { includeUncommitted: boolean; fullHistoryBytesMax?: number; signal?: AbortSignal },
): Promise<PreparedBase> {
  const place = placeOf(repository)
  const { commit: head, branch } = await readHead(repository)
  const headTree = await readLine(place, ['rev-parse', `${head}^{tree}`])
  const excludes = await readExcludes(repository)
  const committed: Base = { commit: head, tree: headTree }
  const staged = options.includeUncommitted
    ? await commitWorkingTree(repository, committed, excludes, options.signal)
    : { base: committed, notes: [] }
  const history = await planHistory(repository, head, staged.base, options.fullHistoryBytesMax ?? FULL_HISTORY_BYTES_MAX)
  return {
    head, headTree, branch, base: staged.base, isDirty: staged.base.commit !== head,
    notes: [...staged.notes, ...await noteSubmodules(place, head), ...history.notes],
    history, excludes, settings: await readSettings(place),
  }
}

async function commitWorkingTree(
  repository: Repository, head: Base, excludes: string, signal: AbortSignal | undefined,
): Promise<{ base: Base; notes: string[] }> {
  return withScratch(repository, async (scratch) => {
    const index = path.join(scratch.folder, 'index')
    const place: GitPlace = { ...scratch.place, workTree: repository.topLevel, index }
    await loadIndex(repository, place, head.commit)
    await forgetConverted(repository, place)
    await writeExcludes(scratch, excludes)
    const staged = await stageWorkingTree({
      run: hostRun, gitDir: scratch.folder, workTree: repository.topLevel, index, signal,
    }, BASE_LIMITS)
    const notes = [...staged.notes, ...staged.omitted.map(({ path: name, reason }) => `not uploaded: ${name} (${reason})`)]
    if (staged.tree === head.tree) return { base: head, notes }
    const commit = await makeCommit(scratch.place, staged.tree, head.commit, 'kosa8: uncommitted work at the start of a run\n')
    await keepCommit(scratch, repository, commit, [head.commit], signal).catch((error: unknown) => {
      throw explainWrite(error, repository)
    })
    return { base: { commit, tree: staged.tree }, notes }
  })
}

/** A copy of the user's index for its knowledge of unchanged files; HEAD's tree where it cannot be read. */
async function loadIndex(repository: Repository, place: GitPlace, head: string): Promise<void> {
  const copied = await copyIfThere(path.join(repository.gitDir, 'index'), place.index!)
  if (copied && (await tryGit(place, ['ls-files', '-s', '-z'], { outputBytesMax: 512 * 1024 * 1024 })).code === 0) return
  await runGit(place, ['read-tree', head])
}

async function writeExcludes(scratch: Scratch, excludes: string): Promise<void> {
  await writeFile(path.join(scratch.folder, 'info/exclude'), excludes)
}

const EXCLUDES_BYTES_MAX = 1024 * 1024

async function readExcludes(repository: Repository): Promise<string> {
  const configured = await tryGit(placeOf(repository), ['config', '--type=path', '--get', 'core.excludesFile'])
  const own = configured.code === 0 ? configured.stdout.toString('utf8').trim() : path.join(homedir(), '.config/git/ignore')
  const files = [own, path.join(repository.commonDir, 'info/exclude')].filter((file) => path.isAbsolute(file))
  const texts = await Promise.all(files.map((file) => readFile(file, 'utf8').catch(() => '')))
  return texts.filter((text) => text.length <= EXCLUDES_BYTES_MAX).map((text) => text.replace(/\n?$/, '\n')).join('')
}

const COPIED_SETTINGS = /^(user\.(name|email)|remote\..*\.(url|fetch)|branch\..*\.(remote|merge)|init\.defaultbranch)$/

async function readSettings(place: GitPlace): Promise<[string, string][]> {
  const listed = await tryGit(place, ['config', '--list', '-z'])
  const settings: [string, string][] = [['user.name', 'kosa8'], ['user.email', 'kosa8@localhost']]
  for (const record of listed.stdout.toString('utf8').split('\0')) {
    const cut = record.indexOf('\n')
    const [key, value] = [record.slice(0, cut), record.slice(cut + 1)]
    if (cut > 0 && COPIED_SETTINGS.test(key)) settings.push([key, withoutCredentials(value)])
  }
  return settings
}

/** An address without the user name and password that may stand in it. */
function withoutCredentials(value: string): string {
  return value.replace(/^([a-z][a-z0-9+.-]*:\/\/)[^/@]*@/i, (whole, scheme: string) => /^ssh/i.test(scheme) ? whole : scheme)
}

async function noteSubmodules(place: GitPlace, head: string): Promise<string[]> {
  const tree = await runGit(place, ['ls-tree', '-r', '-z', head], { outputBytesMax: 512 * 1024 * 1024 })
  const names = tree.toString('utf8').split('\0').filter((line) => line.startsWith('160000 ')).map((line) => line.split('\t')[1]!)
  if (names.length === 0) return []
  return [`submodules are not uploaded, only their commits: ${names.slice(0, 10).join(', ')}${names.length > 10 ? ', …' : ''}`]
}

function explainWrite(error: unknown, repository: Repository): unknown {
  const words = error instanceof Error ? error.message : ''
  if (!/permission denied|insufficient permission|read-only file system/i.test(words)) return error
  return new Kosa8Error('REPOSITORY_INVALID', `kosa8 may not write objects into ${repository.commonDir}`, {
    hint: 'run kosa8 as the owner of the repository', cause: error,
  })
}
