/**
 * The only file that runs git on the host.
 *
 * Owns: the environment git gets there (no prompts, no hooks, no fsmonitor, no system configuration, nothing
 * inherited from a surrounding git command), turning failures into errors, and pipes between two gits.
 */
import { createWriteStream } from 'node:fs'
import { homedir } from 'node:os'
import type { Readable } from 'node:stream'
import { simpleGit, type SimpleGit } from 'simple-git'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { saysDiskFull } from '../util/disk-space.js'
import { runProgram, spawnProgram, type ProgramResult } from '../util/spawn.js'
import { privateEnvironment, QUIET } from './private-git.js'
import type { Workspace } from './workspace.js'

/** Where a git command works, and what it may see. */
export interface GitPlace {
  /** `user`: the user's own settings apply as far as they run nothing. `private`: they do not. */
  kind: 'user' | 'private'
  gitDir: string
  workTree?: string
  index?: string
  /** Further variables, e.g. object directories. */
  env?: Record<string, string>
  /** Further settings, for a private place. */
  settings?: Record<string, string>
}

/** How one git command runs. */
export interface GitRunOptions {
  stdin?: string | Uint8Array | Readable
  cwd?: string
  outputBytesMax?: number
  /**
   * Where the output goes; the result has none then. Written by us: git's own `--output` ends with status 0 also where the disk was
   * full, and leaves a part.
   */
  outputFile?: string
  signal?: AbortSignal | undefined
}

const SYSTEM_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

/** Settings that keep the user's own repository from starting anything. */
const USER_SETTINGS = ['core.hooksPath=/dev/null', 'core.fsmonitor=false', 'core.quotePath=false', 'gc.auto=0',
  'maintenance.auto=false', 'core.logAllRefUpdates=false', 'commit.gpgSign=false', 'protocol.allow=never']

/** Environment of every git on the host; nothing of this process's own gets in, GIT_* variables least of all. */
function environmentOf(place: GitPlace): Record<string, string> {
  const base = { PATH: SYSTEM_PATH, ...place.env }
  if (place.kind === 'private') return { ...privateEnvironment(place, place.settings), ...base }
  const environment: Record<string, string> = { ...QUIET, ...base, HOME: homedir(), GIT_DIR: place.gitDir }
  if (place.workTree !== undefined) environment['GIT_WORK_TREE'] = place.workTree
  if (place.index !== undefined) environment['GIT_INDEX_FILE'] = place.index
  return environment
}

function argumentsOf(place: GitPlace, args: string[]): string[] {
  return place.kind === 'private' ? args : [...USER_SETTINGS.flatMap((setting) => ['-c', setting]), ...args]
}

/** Runs git to its end, whatever its status. */
export function tryGit(place: GitPlace, args: string[], options: GitRunOptions = {}): Promise<ProgramResult> {
  const { signal, outputFile, ...rest } = options
  return runProgram('git', argumentsOf(place, args), {
    cwd: place.workTree ?? '/', ...rest, env: environmentOf(place), ...(signal === undefined ? {} : { signal }),
    ...(outputFile === undefined ? {} : { stdoutTo: createWriteStream(outputFile) }),
  })
}

/**
 * Runs a git command that must succeed.
 * @throws Kosa8Error INTERNAL with git's own words; DISK_FULL where they say so.
 */
export async function runGit(place: GitPlace, args: string[], options: GitRunOptions = {}): Promise<Buffer> {
  const result = await tryGit(place, args, options)
  if (result.code === 0) return result.stdout
  throw gitError(args, result)
}

/** As {@link runGit}, for commands that print one line. */
export async function readLine(place: GitPlace, args: string[], options: GitRunOptions = {}): Promise<string> {
  return (await runGit(place, args, options)).toString('utf8').trim()
}

/** The error of a git command on the host. */
export function gitError(args: string[], result: Pick<ProgramResult, 'code' | 'stderr'>): Kosa8Error {
  const words = result.stderr.toString('utf8').slice(-600).replace(/[\x00-\x1f\x7f]+/g, ' ').trim()
  const code = saysDiskFull(words) ? 'DISK_FULL' : 'INTERNAL'
  return new Kosa8Error(code, `git ${args[0] ?? ''} failed (exit ${result.code}): ${words}`)
}

/**
 * Feeds the output of one git command into another, holding neither in memory.
 * @throws Kosa8Error when either of them fails.
 */
export async function pipeGit(
  from: { place: GitPlace; args: string[]; stdin: string }, to: { place: GitPlace; args: string[] },
  signal?: AbortSignal,
): Promise<void> {
  const source = spawnProgram('git', argumentsOf(from.place, from.args), {
    cwd: '/', env: environmentOf(from.place), stdio: ['pipe', 'pipe', 'ignore'],
  })
  const ended = new Promise<number | null>((resolve, reject) => {
    source.once('error', reject)
    source.once('close', resolve)
  })
  source.stdin?.on('error', () => undefined)
  source.stdin?.end(from.stdin)
  try {
    await runGit(to.place, to.args, { stdin: source.stdout!, cwd: '/', signal })
  } catch (error) {
    source.kill('SIGKILL')
    await ended
    throw error
  }
  const code = await ended
  if (code !== 0) throw new Kosa8Error('INTERNAL', `git ${from.args[0] ?? ''} failed (exit ${code})`)
}

/** Programs on the host in the form a {@link Workspace} has them, so that one code looks at both sides. */
export const hostRun: Workspace['run'] = async (argv, options = {}) => {
  const { cwd, env, stdin, stdoutBytesMax, timeoutMs, signal } = options
  const result = await runProgram(argv[0]!, argv.slice(1), {
    cwd: cwd ?? '/', env: { PATH: SYSTEM_PATH, ...env },
    ...(stdin === undefined ? {} : { stdin }), ...(stdoutBytesMax === undefined ? {} : { outputBytesMax: stdoutBytesMax }),
    ...(timeoutMs === undefined ? {} : { timeoutMs }), ...(signal === undefined ? {} : { signal }),
  })
  return { exitCode: result.code ?? 255, stdout: result.stdout, stderr: result.stderr }
}

/** The user's repository for questions and refs: simple-git with our environment and settings. */
export function userGit(folder: string, safeDirectory: string | null): SimpleGit {
  const safe = safeDirectory === null ? [] : [`safe.directory=${safeDirectory}`]
  return simpleGit({
    baseDir: folder,
    config: [...USER_SETTINGS, ...safe],
    maxConcurrentProcesses: 2,
    completion: { onClose: true, onExit: false },
    allowEnvironment: Object.keys(QUIET),
    // It guards against settings taken from strangers; these are our own, and switch things off.
    unsafe: {
      allowUnsafeHooksPath: true, allowUnsafeFsMonitor: true, allowUnsafeProtocolOverride: true, allowUnsafePager: true,
    },
  }).env({ ...QUIET, PATH: SYSTEM_PATH, HOME: homedir() })
}
