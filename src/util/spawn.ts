/**
 * The only file that starts processes on the host.
 *
 * Owns: spawning without a shell, bounded capture of output, time limits, abort. Used by `git`,
 * `hypervisor/qemu`, `image`, `queue` (redis-server), `daemon` (worker) and `cli` (daemon).
 */
import { spawn, type ChildProcess, type SpawnOptions } from 'node:child_process'
import type { Readable, Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { setupCommand } from './package-root.js'

/** How {@link runProgram} runs a program. */
export interface ProgramOptions {
  cwd?: string
  /** The whole environment; nothing is added to it. Defaults to this process's own. */
  env?: NodeJS.ProcessEnv
  /** Bytes for the program's standard input; without it, standard input is empty. */
  stdin?: string | Uint8Array | Readable
  /** Limit per output stream in bytes; beyond it the program is killed. Default 16 MiB. */
  outputBytesMax?: number
  /** Limit in milliseconds; beyond it the program is killed. No limit by default. */
  timeoutMs?: number
  /** Takes the standard output, however long; the result has none then. Where it fails, the program is killed and its error thrown. */
  stdoutTo?: Writable
  signal?: AbortSignal
}

/** How a program ended. `code` is null when a signal ended it. */
export interface ProgramResult {
  code: number | null
  signal: NodeJS.Signals | null
  stdout: Buffer
  stderr: Buffer
}

const DEFAULT_OUTPUT_BYTES_MAX = 16 * 1024 * 1024

/**
 * Runs a program to its end and returns its status and output, whatever the status.
 * @throws Kosa8Error PROGRAM_MISSING, LIMIT_EXCEEDED, TIMED_OUT or CANCELLED.
 */
export async function runProgram(program: string, args: string[], options: ProgramOptions = {}): Promise<ProgramResult> {
  const limit = options.outputBytesMax ?? DEFAULT_OUTPUT_BYTES_MAX
  options.signal?.throwIfAborted()
  const child = spawnProgram(program, args, { cwd: options.cwd, env: options.env, stdio: 'pipe' })
  let stopped: Error | undefined
  const stop = (error: Error): void => {
    stopped ??= error
    child.kill('SIGKILL')
  }
  const timer = options.timeoutMs === undefined ? undefined : setTimeout(
    () => stop(new Kosa8Error('TIMED_OUT', `${program} did not end within ${options.timeoutMs} ms`)), options.timeoutMs)
  const onAbort = (): void => stop(new Kosa8Error('CANCELLED', `${program} was cancelled`))
  options.signal?.addEventListener('abort', onAbort, { once: true })
  try {
    const tooLong = (): void => stop(new Kosa8Error('LIMIT_EXCEEDED', `${program} printed more than ${limit} bytes`))
    const stdout = options.stdoutTo === undefined
      ? collectBounded(child.stdout, limit, tooLong)
      : pipeline(child.stdout!, options.stdoutTo).then(() => Buffer.alloc(0), (error: Error) => { stop(error); return Buffer.alloc(0) })
    const stderr = collectBounded(child.stderr, limit, tooLong)
    const ended = waitForEnd(child, program)
    await Promise.all([feedStdin(child, options.stdin), ended])
    const { code, signal } = await ended
    const output = { stdout: await stdout, stderr: await stderr }
    if (stopped !== undefined) throw stopped
    return { code, signal, ...output }
  } finally {
    clearTimeout(timer)
    options.signal?.removeEventListener('abort', onAbort)
  }
}

/** Starts a program without a shell; the caller owns the child. */
export function spawnProgram(program: string, args: string[], options: SpawnOptions): ChildProcess {
  return spawn(program, args, { ...options, shell: false })
}

/** @param cause what the system said when it was to be started */
export function programMissing(program: string, cause: Error): Kosa8Error {
  return new Kosa8Error('PROGRAM_MISSING', `the program ${program} is not installed`, {
    hint: `install what kosa8 needs: ${setupCommand()}`, details: { program }, cause,
  })
}

function waitForEnd(child: ChildProcess, program: string): Promise<Pick<ProgramResult, 'code' | 'signal'>> {
  return new Promise((resolve, reject) => {
    child.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') return reject(error)
      reject(programMissing(program, error))
    })
    child.once('close', (code, signal) => resolve({ code, signal }))
  })
}

async function feedStdin(child: ChildProcess, stdin: ProgramOptions['stdin']): Promise<void> {
  if (child.stdin === null) return
  // A program may end before it has read everything: that is its right, its status tells the rest.
  const ignoreBrokenPipe = (error: NodeJS.ErrnoException): void => {
    if (error.code !== 'EPIPE' && error.code !== 'ECONNRESET' && error.code !== 'ERR_STREAM_PREMATURE_CLOSE') throw error
  }
  if (stdin === undefined || typeof stdin === 'string' || stdin instanceof Uint8Array) {
    child.stdin.on('error', () => undefined)
    child.stdin.end(stdin)
    return
  }
  await pipeline(stdin, child.stdin).catch(ignoreBrokenPipe)
}

async function collectBounded(stream: Readable | null, limit: number, onTooLong: () => void): Promise<Buffer> {
  const chunks: Buffer[] = []
  let sizeBytes = 0
  for await (const chunk of stream ?? []) {
    sizeBytes += (chunk as Buffer).length
    if (sizeBytes > limit) onTooLong()
    else chunks.push(chunk as Buffer)
  }
  return Buffer.concat(chunks)
}
