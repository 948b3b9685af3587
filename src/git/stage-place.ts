/**
 * Where staging works, and programs run there.
 *
 * Owns: the place's shape and the callers that stage.ts and its neighbours share.
 */
import { joinRecords } from './paths.js'
import { privateEnvironment } from './private-git.js'
import { commandError, type Workspace, type WorkspaceResult } from './workspace.js'

/** A working tree to look at, with our own git folder and a copy of an index to work on. */
export interface StagePlace {
  run: Workspace['run']
  gitDir: string
  workTree: string
  index: string
  settings?: Record<string, string>
  signal?: AbortSignal | undefined
}

/** Bytes of one listing; a working tree of a million paths stays below it. */
export const LIST_BYTES_MAX = 128 * 1024 * 1024

/** Variables of every program that works in a place. */
export function placeEnvironment(place: StagePlace): Record<string, string> {
  return privateEnvironment(place, place.settings)
}

/** Runs a program in the working tree with the private environment, whatever its status. */
export function runInPlace(place: StagePlace, argv: string[], stdin?: Buffer): Promise<WorkspaceResult> {
  return place.run(argv, {
    cwd: place.workTree, env: placeEnvironment(place), stdoutBytesMax: LIST_BYTES_MAX,
    ...(stdin === undefined ? {} : { stdin }), ...(place.signal === undefined ? {} : { signal: place.signal }),
  })
}

/** Paths of up to this many bytes go to a program directly; Linux allows far more. */
const ARGUMENT_BYTES_MAX = 64 * 1024

/** Runs a program with paths as its last arguments: itself, or for many or odd paths through `xargs`. */
export function runOnPaths(place: StagePlace, argv: string[], paths: readonly Buffer[]): Promise<WorkspaceResult> {
  const stdin = joinRecords(paths)
  const words = paths.map((path) => path.toString('utf8'))
  const isExact = stdin.length <= ARGUMENT_BYTES_MAX && words.every((word, at) => Buffer.from(word).equals(paths[at]!))
  return isExact ? runInPlace(place, [...argv, ...words]) : runInPlace(place, ['xargs', '-0', '-r', ...argv], stdin)
}

/**
 * Runs git in a place's private git folder; it must succeed.
 * @throws Kosa8Error GUEST_COMMAND_FAILED.
 */
export function stageGit(place: StagePlace, args: string[], stdin?: Buffer): Promise<Buffer> {
  return checkedInPlace(place, `git ${args[0] ?? ''}`, ['git', ...args], stdin)
}

/**
 * As {@link runInPlace}, for a program that must succeed.
 * @throws Kosa8Error GUEST_COMMAND_FAILED.
 */
export async function checkedInPlace(place: StagePlace, purpose: string, argv: string[], stdin?: Buffer): Promise<Buffer> {
  const result = await runInPlace(place, argv, stdin)
  if (result.exitCode === 0) return result.stdout
  throw commandError(purpose, result.exitCode, result.stderr.toString('utf8'))
}
