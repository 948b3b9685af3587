/**
 * The guest as git needs it: a repository's folder, a folder of our own, and a way to run programs.
 *
 * Owns: the contract and two small callers of it. Implemented over a guest session elsewhere, and over a
 * temporary folder in tests. Everything that comes back through it is untrusted data.
 */
import type { Readable } from 'node:stream'
import { Kosa8Error } from '../errors/kosa8-error.js'

/** How {@link Workspace.run} runs a program in the guest. */
export interface WorkspaceRunOptions {
  stdin?: Readable | Uint8Array | string
  /** Added to the guest's small default environment. */
  env?: Record<string, string>
  /** Absolute path in the guest; the workspace's `path` by default. */
  cwd?: string
  /** Bytes kept of standard output; more is an error (LIMIT_EXCEEDED). Default 16 MiB. */
  stdoutBytesMax?: number
  /** Called with standard error as it comes; untrusted text. */
  onStderr?: (chunk: Buffer) => void
  /** Milliseconds after which the command is killed (TIMED_OUT). No limit by default. */
  timeoutMs?: number
  signal?: AbortSignal
}

/** How a program in the guest ended; 128 + n when signal n ended it. */
export interface WorkspaceResult {
  exitCode: number
  stdout: Buffer
  stderr: Buffer
}

/** A program whose standard output is read as it comes. */
export interface WorkspaceStream {
  stdout: Readable
  ended: Promise<{ exitCode: number; stderr: string }>
}

/** The repository in a guest, and the means to look at it. */
export interface Workspace {
  /** The repository's working tree in the guest, e.g. `/workspace`. */
  path: string
  /** Our private folder in the guest, outside `path`, on the same file system where possible. */
  stateDirectory: string
  run(argv: string[], options?: WorkspaceRunOptions): Promise<WorkspaceResult>
  stream(argv: string[], options?: Omit<WorkspaceRunOptions, 'stdoutBytesMax' | 'onStderr'>): Promise<WorkspaceStream>
}

/**
 * Runs a program in the guest that must succeed.
 * @throws Kosa8Error GUEST_COMMAND_FAILED naming `purpose`, with the end of standard error.
 */
export async function runChecked(
  workspace: Pick<Workspace, 'run'>, purpose: string, argv: string[], options: WorkspaceRunOptions = {},
): Promise<Buffer> {
  const result = await workspace.run(argv, options)
  if (result.exitCode !== 0) throw commandError(purpose, result.exitCode, result.stderr.toString('utf8'))
  return result.stdout
}

/** The error of a command in the guest that failed; `stderr` is cut and cleaned of control characters. */
export function commandError(purpose: string, exitCode: number, stderr: string): Kosa8Error {
  const tail = stderr.slice(-600).replace(/[\x00-\x1f\x7f]+/g, ' ').trim()
  return new Kosa8Error('GUEST_COMMAND_FAILED', `${purpose} failed in the guest (exit ${exitCode}): ${tail}`, {
    details: { purpose, exitCode },
  })
}
