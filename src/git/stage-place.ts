/**
 * Where staging works, and programs run there.
 *
 * Owns: the place's shape and the two callers that stage.ts and its neighbours share.
 */
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

/** Runs a program in the working tree with the private environment, whatever its status. */
export function runInPlace(place: StagePlace, argv: string[], stdin?: Buffer): Promise<WorkspaceResult> {
  return place.run(argv, {
    cwd: place.workTree, env: privateEnvironment(place, place.settings), stdoutBytesMax: LIST_BYTES_MAX,
    ...(stdin === undefined ? {} : { stdin }), ...(place.signal === undefined ? {} : { signal: place.signal }),
  })
}

/**
 * Runs git in a place's private git folder; it must succeed.
 * @throws Kosa8Error GUEST_COMMAND_FAILED.
 */
export async function stageGit(place: StagePlace, args: string[], stdin?: Buffer): Promise<Buffer> {
  const result = await runInPlace(place, ['git', ...args], stdin)
  if (result.exitCode === 0) return result.stdout
  throw commandError(`git ${args[0] ?? ''}`, result.exitCode, result.stderr.toString('utf8'))
}
