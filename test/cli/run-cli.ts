/** What a user does: types a command line, reads what is printed, presses Ctrl-C. Against in-memory services. */
import { PassThrough } from 'node:stream'
import { runCli } from '../../src/cli/program.js'
import type { CliHost, StopSignal } from '../../src/cli/host.js'
import type { Settings } from '../../src/config/environment.js'

export interface CliOutcome {
  status: number
  stdout: string
  stderr: string
}

export interface RunningCli {
  ended: Promise<CliOutcome>
  press(signal: StopSignal): void
  /** Gives the terminal another number of rows. */
  resize(rows: number): void
  /** Every switch into raw mode and out of it. */
  rawModes: boolean[]
  /** What has been printed to standard error so far. */
  stderrSoFar(): string
}

export interface CliOptions {
  settings: Settings
  cwd?: string
  stdin?: string
  terminals?: Partial<CliHost['terminals']>
  rows?: number
  /** Whoever reads the output goes after its first bytes. */
  readerGoes?: boolean
}

/** Starts a command line and lets it run. */
export function startCli(argv: string[], options: CliOptions): RunningCli {
  const chunks = { stdout: [] as Buffer[], stderr: [] as Buffer[] }
  const [stdout, stderr, stdin] = [new PassThrough(), new PassThrough(), new PassThrough()]
  stdout.on('data', (chunk: Buffer) => {
    chunks.stdout.push(chunk)
    if (options.readerGoes === true) stdout.destroy(Object.assign(new Error('write EPIPE'), { code: 'EPIPE' }))
  })
  stdout.on('error', () => undefined)
  stderr.on('data', (chunk: Buffer) => chunks.stderr.push(chunk))
  stdin.end(options.stdin ?? '')
  const handlers = new Set<(signal: StopSignal) => void>()
  const resizeHandlers = new Set<() => void>()
  const rawModes: boolean[] = []
  let rows = options.rows ?? 24
  const host: CliHost = {
    stdout, stderr, stdin,
    terminals: { stdin: false, stdout: false, stderr: false, ...options.terminals },
    terminalSize: () => ({ columns: 100, rows }),
    onResize: (handler) => { resizeHandlers.add(handler); return () => { resizeHandlers.delete(handler) } },
    setRawMode: (isRaw) => rawModes.push(isRaw),
    settings: options.settings,
    cwd: options.cwd ?? '/',
    onSignal: (handler) => { handlers.add(handler); return () => { handlers.delete(handler) } },
  }
  const text = (name: 'stdout' | 'stderr'): string => Buffer.concat(chunks[name]).toString()
  const ended = runCli(argv, host).then((status) => ({ status, stdout: text('stdout'), stderr: text('stderr') }))
  return {
    ended, rawModes,
    press: (signal) => { for (const handler of [...handlers]) handler(signal) },
    resize: (wanted) => { rows = wanted; for (const handler of resizeHandlers) handler() },
    stderrSoFar: () => text('stderr'),
  }
}

/** Runs a command line to its end. */
export function typeCommand(argv: string[], options: CliOptions): Promise<CliOutcome> {
  return startCli(argv, options).ended
}
