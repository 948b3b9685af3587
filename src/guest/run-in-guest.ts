/**
 * Runs one command in the guest to its end and collects what it printed.
 *
 * Owns: the rule when a command counts as ended: its first process has ended, plus a short grace for
 * late output; whatever is left then is killed. Callers: `sandbox`, `git`, trials.
 */
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { GuestCommand, GuestExit, GuestProcess, GuestSession, LeftoverProcess } from './session.js'

/** How {@link runInGuest} runs a command. */
export interface GuestRunOptions {
  /** Bytes for standard input; without it, standard input is empty. */
  stdin?: string | Uint8Array | Readable | undefined
  /** Kept per output stream, bytes; the rest is read and dropped. Default 16 MiB. */
  outputBytesMax?: number | undefined
  /** Which part of too much output is kept; the head by default. */
  keep?: 'head' | 'tail' | undefined
  /** Limit in milliseconds; beyond it everything is killed. No limit by default. */
  timeoutMs?: number | undefined
  /** Time for late output after the first process ended, milliseconds. Default 200. */
  graceMs?: number | undefined
  /** Aborted: everything is killed and the call rejects CANCELLED. */
  signal?: AbortSignal | undefined
  /** Gets the output as it comes, also what is not kept. */
  onOutput?: ((chunk: Buffer, stream: 'stdout' | 'stderr') => void) | undefined
}

/** How a command ended. */
export interface GuestRunResult {
  exit: GuestExit
  stdout: Buffer
  stderr: Buffer
  /** Output beyond `outputBytesMax` was dropped. */
  truncated: boolean
  timedOut: boolean
  /** Processes that were still there at the end and were killed. */
  leftovers: LeftoverProcess[]
}

const OUTPUT_BYTES_MAX = 16 * 1024 * 1024
const GRACE_MS = 200

/**
 * Runs a command, whatever its exit status.
 * @throws Kosa8Error GUEST_COMMAND_FAILED when it cannot be started, CANCELLED, GUEST_UNREACHABLE, GUEST_PROTOCOL.
 */
export async function runInGuest(
  session: Pick<GuestSession, 'exec'>, command: GuestCommand, options: GuestRunOptions = {},
): Promise<GuestRunResult> {
  throwIfCancelled(options.signal)
  const process = await session.exec({ ...command, stdin: options.stdin !== undefined })
  const limit = options.outputBytesMax ?? OUTPUT_BYTES_MAX
  const stdout = new OutputCollector(process.stdout, limit, options.keep ?? 'head', (chunk) => options.onOutput?.(chunk, 'stdout'))
  const stderr = new OutputCollector(process.stderr, limit, options.keep ?? 'head', (chunk) => options.onOutput?.(chunk, 'stderr'))
  const outputEnded = Promise.all([stdout.ended, stderr.ended])
  let reason: 'exited' | 'timedOut' | 'cancelled'
  let leftovers: LeftoverProcess[]
  try {
    const fed = feedInput(process, options.stdin)
    reason = await waitForEnd(Promise.race([process.exited, fed.then(() => process.exited)]), options)
    if (reason === 'exited') await waitAtMost(outputEnded, options.graceMs ?? GRACE_MS)
  } finally {
    leftovers = await process.close()
  }
  await outputEnded
  if (reason === 'cancelled') throw new Kosa8Error('CANCELLED', `${command.argv[0]} was cancelled`)
  return {
    exit: await process.exited, stdout: stdout.content(), stderr: stderr.content(),
    truncated: stdout.isTruncated || stderr.isTruncated, timedOut: reason === 'timedOut', leftovers,
  }
}

/** Keeps the beginning of a stream and reads on to its end. */
class OutputCollector {
  readonly ended: Promise<void>
  isTruncated = false
  private readonly chunks: Buffer[] = []
  private sizeBytes = 0

  constructor(
    stream: Readable, private readonly limit: number, private readonly keep: 'head' | 'tail',
    private readonly onChunk: (chunk: Buffer) => void,
  ) {
    stream.on('data', (chunk: Buffer) => this.add(chunk))
    this.ended = new Promise((resolve) => stream.once('close', resolve))
  }

  content(): Buffer {
    const all = Buffer.concat(this.chunks)
    return this.keep === 'head' ? all : all.subarray(Math.max(0, all.length - this.limit))
  }

  private add(chunk: Buffer): void {
    this.onChunk(chunk)
    if (this.keep === 'tail') {
      this.addToTail(chunk)
      return
    }
    const kept = chunk.subarray(0, this.limit - this.sizeBytes)
    if (kept.length < chunk.length) this.isTruncated = true
    if (kept.length > 0) this.chunks.push(kept)
    this.sizeBytes += kept.length
  }

  /** Keeps whole chunks; `content` cuts the first one. */
  private addToTail(chunk: Buffer): void {
    // A copy: the chunk may be a view into a larger buffer that would stay alive with it.
    this.chunks.push(Buffer.from(chunk))
    this.sizeBytes += chunk.length
    if (this.sizeBytes > this.limit) this.isTruncated = true
    while (this.sizeBytes - (this.chunks[0]?.length ?? 0) >= this.limit) {
      this.sizeBytes -= (this.chunks.shift() as Buffer).length
    }
  }
}

/** A command may end before it has read everything: that is its right, its status tells the rest. */
async function feedInput(process: GuestProcess, input: GuestRunOptions['stdin']): Promise<void> {
  if (process.stdin === null) return
  if (!(input instanceof Readable)) {
    process.stdin.end(input)
    return
  }
  await pipeline(input, process.stdin).catch((error: unknown) => {
    if (input.errored !== null) throw error
  })
}

async function waitForEnd(exited: Promise<GuestExit>, options: GuestRunOptions): Promise<'exited' | 'timedOut' | 'cancelled'> {
  let timer: NodeJS.Timeout | undefined
  let onAbort = (): void => undefined
  const stopped = new Promise<'timedOut' | 'cancelled'>((resolve) => {
    if (options.timeoutMs !== undefined) timer = setTimeout(() => resolve('timedOut'), options.timeoutMs)
    onAbort = () => resolve('cancelled')
    options.signal?.addEventListener('abort', onAbort, { once: true })
    if (options.signal?.aborted === true) onAbort()
  })
  try {
    return await Promise.race([exited.then(() => 'exited' as const), stopped])
  } finally {
    clearTimeout(timer)
    options.signal?.removeEventListener('abort', onAbort)
  }
}

async function waitAtMost(promise: Promise<unknown>, limitMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const limit = new Promise((resolve) => {
    timer = setTimeout(resolve, limitMs)
  })
  await Promise.race([promise, limit])
  clearTimeout(timer)
}

function throwIfCancelled(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw new Kosa8Error('CANCELLED', 'the command was cancelled before it started')
}
