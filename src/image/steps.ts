/**
 * The steps of a build: each has a title, reports its progress and says what went wrong in it.
 *
 * Owns: running a step's programs so that they end with us, keeping the last lines they printed,
 * and turning their failures into errors with a next step for the user. Used by this folder only.
 */
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import { isDeepStrictEqual } from 'node:util'
import type { ErrorCode } from '../errors/codes.js'
import { Kosa8Error, toKosa8Error } from '../errors/kosa8-error.js'
import { createDeferred } from '../util/deferred.js'
import { saysDiskFull } from '../util/disk-space.js'
import { setupCommand } from '../util/package-root.js'
import { runProgram, spawnProgram } from '../util/spawn.js'

/** What a build tells while it goes on. */
export interface ImageProgress {
  image: string
  /** What is being done, e.g. "install Debian packages". */
  title: string
  state: 'started' | 'output' | 'finished'
  /** Milliseconds since the step began. */
  elapsedMs: number
  /** One line a program printed; with state `output` only. */
  line?: string
}

/** Errors that say all there is to say without a step's name. */
const NOT_OF_A_STEP: ErrorCode[] = ['CANCELLED', 'IMAGE_ARCHIVE_INVALID', 'USAGE']
/** Lines of a failed program's output that its error carries. */
const TAIL_LINES = 12
/** A program that was asked to end has so long to tidy up, in milliseconds. */
const END_GRACE_MS = 15_000
/**
 * Programs for administrators are not on an ordinary user's path. The whole group ends when its
 * standard input does: when this process dies, however it dies, nothing goes on building.
 */
const WRAPPER = [
  'PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"; export PATH LC_ALL=C; umask 022',
  // A command in the background gets no standard input of its own accord.
  'exec 3<&0; { cat <&3; kill -TERM -$$; } >/dev/null 2>&1 &',
  'exec "$@" 3<&- </dev/null',
].join('\n')

/** Runs the steps of one build. */
export class BuildSteps {
  constructor(
    private readonly image: string,
    private readonly onProgress: (progress: ImageProgress) => void,
    readonly signal: AbortSignal | undefined,
  ) {}

  /** Runs one step; what it throws comes out as a Kosa8Error that names the step. */
  async run<T>(title: string, work: (step: BuildStep) => Promise<T>): Promise<T> {
    const startedAt = performance.now()
    const report = (state: ImageProgress['state'], line?: string): void => this.onProgress({
      image: this.image, title, state, elapsedMs: performance.now() - startedAt, ...(line === undefined ? {} : { line }),
    })
    this.throwIfCancelled()
    report('started')
    try {
      const result = await work(new BuildStep(title, (line) => report('output', line), this.signal))
      this.throwIfCancelled()
      report('finished')
      return result
    } catch (error) {
      throw nameStep(error, this.image, title)
    }
  }

  /** Tells something that is not a step of its own. */
  note(title: string): void {
    this.onProgress({ image: this.image, title, state: 'started', elapsedMs: 0 })
  }

  private throwIfCancelled(): void {
    if (this.signal?.aborted === true) throw new Kosa8Error('CANCELLED', `the build of image ${this.image} was cancelled`)
  }
}

function nameStep(thrown: unknown, image: string, title: string): Kosa8Error {
  const error = toKosa8Error(thrown)
  const code = error.code === 'INTERNAL' ? 'IMAGE_BUILD_FAILED' : error.code
  if (isDeepStrictEqual(error.details['step'], title) || NOT_OF_A_STEP.includes(code)) return error
  return new Kosa8Error(code, `image ${image}, step "${title}": ${error.message}`, {
    hint: error.hint ?? 'mend the cause and build the image again',
    details: { ...error.details, image, step: title },
    cause: thrown,
  })
}

/** One step while it runs. */
export class BuildStep {
  constructor(
    readonly title: string,
    /** Reports a line to the user. */
    readonly tell: (line: string) => void,
    private readonly signal: AbortSignal | undefined,
  ) {}

  /**
   * Runs a program to its end. Its output is reported line by line; it is ended when the build is
   * cancelled and when this process dies.
   * @throws Kosa8Error IMAGE_BUILD_FAILED or DISK_FULL with the last lines in `details.output`; CANCELLED.
   */
  async runProgram(program: string, args: string[], options: { cwd?: string } = {}): Promise<void> {
    const tail: string[] = []
    // A session of its own: what it started ends with it, and Ctrl-C reaches us first.
    const child = spawnProgram('sh', ['-c', WRAPPER, 'sh', program, ...args], {
      ...options, stdio: ['pipe', 'pipe', 'pipe'], detached: true,
    })
    child.stdin?.on('error', () => undefined)
    child.once('exit', () => child.stdin?.end())
    const ended = createDeferred<number | NodeJS.Signals>()
    child.once('error', ended.reject)
    child.once('close', (code, signal) => ended.resolve(code ?? signal ?? 'SIGKILL'))
    for (const stream of [child.stdout, child.stderr]) this.follow(stream, tail)
    const stop = (): void => endGroup(child.pid, ended.promise)
    this.signal?.addEventListener('abort', stop, { once: true })
    if (this.signal?.aborted === true) stop()
    try {
      const status = await ended.promise
      if (this.signal?.aborted === true) throw new Kosa8Error('CANCELLED', `${program} was cancelled`)
      if (status !== 0) throw describeFailure(program, status, tail)
    } finally {
      this.signal?.removeEventListener('abort', stop)
    }
  }

  private follow(stream: Readable | null, tail: string[]): void {
    if (stream === null) return
    createInterface({ input: stream }).on('line', (line) => {
      if (line.trim() === '') return
      tail.push(line)
      if (tail.length > TAIL_LINES) tail.shift()
      this.tell(line)
    })
  }
}

function endGroup(pid: number | undefined, ended: Promise<unknown>): void {
  if (pid === undefined) return
  const send = (signal: NodeJS.Signals): void => {
    try {
      process.kill(-pid, signal)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
    }
  }
  send('SIGTERM')
  const timer = setTimeout(() => send('SIGKILL'), END_GRACE_MS)
  const forget = (): void => clearTimeout(timer)
  ended.then(forget, forget)
}

function describeFailure(program: string, status: number | NodeJS.Signals, tail: string[]): Kosa8Error {
  const isDiskFull = tail.some(saysDiskFull)
  const how = typeof status === 'number' ? `ended with status ${status}` : `was ended by ${status}`
  return new Kosa8Error(isDiskFull ? 'DISK_FULL' : 'IMAGE_BUILD_FAILED', isDiskFull
    ? `${program} found no space left on the disk`
    : `${program} ${how}${tail.length > 0 ? `: ${tail.at(-1)}` : ''}`, {
    hint: isDiskFull ? 'free some disk space and build the image again' : 'mend the cause (for a download: the network) and build the image again',
    details: { program, output: tail },
  })
}

/**
 * Checks that programs are installed, before anything is started.
 * @throws Kosa8Error PROGRAM_MISSING naming all that are missing.
 */
export async function requirePrograms(programs: string[]): Promise<void> {
  const script = 'PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"; for p; do command -v "$p" >/dev/null || echo "$p"; done'
  const { stdout } = await runProgram('sh', ['-c', script, 'sh', ...programs])
  const missing = stdout.toString().split('\n').filter((name) => name !== '')
  if (missing.length === 0) return
  throw new Kosa8Error('PROGRAM_MISSING', `not installed: ${missing.join(', ')}`, {
    hint: `install what kosa8 needs: ${setupCommand()}`, details: { programs: missing },
  })
}
