/**
 * Runs one strategy in one clone, within its time, and says how it ended.
 *
 * Owns: the strategy's view of its clone, the limits around it, and the rule when a command has ended
 * (its first process has, plus a short grace for late output; what is left is killed and named).
 */
import { runInGuest } from '../guest/run-in-guest.js'
import type { LeftoverProcess } from '../guest/session.js'
import { Kosa8Error, toKosa8Error } from '../errors/kosa8-error.js'
import type { ApproachPlan, TrialState } from '../model/run.js'
import type { Strategy, StrategyCommandResult, StrategyContext, StrategyOutcome } from '../model/strategy.js'
import type { Sandbox } from '../sandbox/sandbox.js'
import { countOf } from '../util/count-of.js'
import { exitStatusOf, WORKSPACE_PATH } from './guest-workspace.js'
import { networkEnvironment } from './host-certificates.js'
import type { TrialLog } from './trial-log.js'

/** Bytes of each output stream a strategy gets back from a command; the log has more. */
const RESULT_BYTES_MAX = 1024 * 1024
const READ_BYTES_MAX = 16 * 1024 * 1024
/** After its limit a strategy's own code gets this long to notice, milliseconds. */
const ABORT_GRACE_MS = 2_000

/** A busy emulated guest is slow: output of processes a command left behind is waited for this long, milliseconds. */
const LATE_OUTPUT_MS = 2_000

/** Nobody is there to answer: no pager, no editor, no prompt may wait for one. */
const UNATTENDED_ENVIRONMENT: Readonly<Record<string, string>> = {
  PAGER: 'cat', GIT_PAGER: 'cat', EDITOR: 'true', VISUAL: 'true', GIT_EDITOR: 'true',
  GIT_TERMINAL_PROMPT: '0', DEBIAN_FRONTEND: 'noninteractive', CI: '1', TERM: 'dumb',
}

/** The environment of every command nobody sits in front of. */
export function unattendedEnvironment(sandbox: Sandbox): Record<string, string> {
  return { ...UNATTENDED_ENVIRONMENT, ...networkEnvironment(sandbox) }
}

/** How the strategy of a trial ended. */
export interface StrategyEnd {
  state: Extract<TrialState, 'completed' | 'failed' | 'timedOut'>
  exitCode: number | null
  usage: StrategyOutcome['usage']
  notes: string[]
}

/** What a strategy runs with. */
export interface StrategyRun {
  sandbox: Sandbox
  approach: ApproachPlan
  repeat: number
  strategy: Strategy
  timeoutMs: number
  log: TrialLog
  /** Aborted when the trial must end now; then this rejects with the signal's reason. */
  signal: AbortSignal
}

/** @throws the reason of `signal`, or GUEST_UNREACHABLE when the machine is lost: both are ours, not the strategy's. */
export async function runStrategy(run: StrategyRun): Promise<StrategyEnd> {
  const limit = new AbortController()
  const timer = setTimeout(() => limit.abort(new Kosa8Error('TIMED_OUT', 'the time limit of the trial')), run.timeoutMs)
  const signal = AbortSignal.any([run.signal, limit.signal])
  const notes: string[] = []
  try {
    const outcome = await raceAbort(run.strategy.run(createContext(run, signal, notes)), signal)
    limit.signal.throwIfAborted()
    return {
      state: outcome.exitCode === 0 ? 'completed' : 'failed',
      exitCode: outcome.exitCode,
      usage: outcome.usage,
      notes: [...notes, ...(outcome.notes ?? []).slice(0, 20).map((note) => note.slice(0, 500))],
    }
  } catch (error) {
    run.signal.throwIfAborted()
    if (limit.signal.aborted) {
      run.log.line(`stopped: the limit of ${run.timeoutMs} ms was reached`)
      return { state: 'timedOut', exitCode: null, usage: undefined, notes: [...notes, 'stopped: limit'] }
    }
    if (isInfrastructure(error)) throw error
    const message = toKosa8Error(error).message.slice(0, 500)
    run.log.line(`the strategy failed: ${message}`)
    return { state: 'failed', exitCode: null, usage: undefined, notes: [...notes, `strategy failed: ${message}`] }
  } finally {
    clearTimeout(timer)
  }
}

function createContext(run: StrategyRun, signal: AbortSignal, notes: string[]): StrategyContext {
  const { session, cloneId } = run.sandbox
  const base = {
    ...unattendedEnvironment(run.sandbox),
    KOSA8_APPROACH: run.approach.approach, KOSA8_REPEAT: String(run.repeat), KOSA8_CLONE_ID: cloneId,
  }
  const resolve = (path: string): string => path.startsWith('/') ? path : `${WORKSPACE_PATH}/${path}`
  return {
    approach: run.approach.approach,
    repeat: run.repeat,
    parameters: run.approach.parameters,
    workspace: WORKSPACE_PATH,
    signal,
    log: (line) => run.log.line(line),
    async exec(argv, options = {}): Promise<StrategyCommandResult> {
      const result = await runInGuest(session, { argv, cwd: options.cwd ?? WORKSPACE_PATH, env: { ...base, ...options.env } }, {
        stdin: options.stdin,
        outputBytesMax: RESULT_BYTES_MAX,
        keep: 'tail',
        graceMs: LATE_OUTPUT_MS,
        signal,
        onOutput: (chunk, stream) => run.log.add(stream, chunk),
      })
      noteLeftovers(result.leftovers, run.log, notes)
      return {
        exitCode: exitStatusOf(result.exit),
        stdout: result.stdout.toString('utf8'),
        stderr: result.stderr.toString('utf8'),
      }
    },
    async writeFile(path, content, mode) {
      await session.writeFile(resolve(path), content, mode === undefined ? {} : { mode })
    },
    async readFile(path) {
      const chunks: Buffer[] = []
      for await (const chunk of await session.readFile(resolve(path), { bytesMax: READ_BYTES_MAX })) chunks.push(chunk as Buffer)
      return Buffer.concat(chunks)
    },
  }
}

function noteLeftovers(leftovers: LeftoverProcess[], log: TrialLog, notes: string[]): void {
  if (leftovers.length === 0) return
  const count = countOf(leftovers.length, 'process', 'processes')
  const names = [...new Set(leftovers.map((process) => process.name))].join(', ')
  log.line(`stopped ${count} left behind: ${names}`)
  notes.push(`left ${count} running: ${names}`)
}

/** Waits for the strategy, but once aborted only as long as its code is given to notice. */
async function raceAbort<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const aborted = new Promise<never>((_, reject) => {
    const onAbort = (): void => {
      timer = setTimeout(() => reject(signal.reason as Error), ABORT_GRACE_MS)
    }
    if (signal.aborted) onAbort()
    else signal.addEventListener('abort', onAbort, { once: true })
  })
  // A strategy that ends after we stopped waiting ends unheard.
  work.catch(() => undefined)
  try {
    return await Promise.race([work, aborted])
  } finally {
    clearTimeout(timer)
  }
}

function isInfrastructure(error: unknown): boolean {
  return Kosa8Error.isInstance(error) && ['GUEST_UNREACHABLE', 'GUEST_PROTOCOL', 'MACHINE_GONE'].includes(error.code)
}
