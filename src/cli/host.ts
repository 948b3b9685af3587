/**
 * What a command sees of the process it runs in: streams, terminal, signals, settings.
 *
 * Owns: the contract and how text gets out. `main.ts` makes one of the real process, tests make their own.
 */
import type { Readable, Writable } from 'node:stream'
import type { Settings } from '../config/environment.js'
import type { ErrorRecord } from '../errors/kosa8-error.js'
import { Kosa8Client } from '../sdk/client.js'

/** Signals a command may answer; everything else ends the process as usual. */
export type StopSignal = 'SIGINT' | 'SIGTERM' | 'SIGHUP'

/** The process around a command. */
export interface CliHost {
  stdout: Writable
  stderr: Writable
  stdin: Readable
  /** Standard input, output and error are terminals. */
  terminals: { stdin: boolean; stdout: boolean; stderr: boolean }
  /** Size of the terminal, asked anew each time. */
  terminalSize(): { columns: number; rows: number }
  /** Calls `handler` whenever the terminal has another size. @returns how to stop that. */
  onResize(handler: () => void): () => void
  /** True: keys come one by one and mean nothing to the terminal itself. Does nothing where there is none. */
  setRawMode(isRaw: boolean): void
  settings: Settings
  cwd: string
  /** Calls `handler` for every stop signal from now on. @returns how to stop that. */
  onSignal(handler: (signal: StopSignal) => void): () => void
}

/** Exit status of a process that a signal ended, by convention 128 + its number. */
export const SIGNAL_STATUS: Record<StopSignal, number> = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 }

/** What every command is given beside its own options. */
export interface CommandTools {
  host: CliHost
  client: Kosa8Client
  output: Output
}

/** Text on its way out. */
export class Output {
  constructor(private readonly host: CliHost) {}

  /** Colours on standard output. */
  get hasColour(): boolean {
    return this.host.terminals.stdout && !this.host.settings.noColor
  }

  /** Room for a line of a list: whoever reads it through a pipe gets it whole. */
  get columns(): number {
    return this.host.terminals.stdout ? this.host.terminalSize().columns : Infinity
  }

  /** The answer of a command. */
  print(text: string): void {
    this.host.stdout.write(text.endsWith('\n') || text === '' ? text : `${text}\n`)
  }

  printJson(value: unknown): void {
    this.print(JSON.stringify(value, null, 2))
  }

  /** Remarks and progress: never mixed with an answer. */
  note(text: string): void {
    this.host.stderr.write(`${text}\n`)
  }

  /** One line, then a hint line; or one JSON object. */
  error(error: ErrorRecord, asJson: boolean): void {
    if (asJson) return this.note(JSON.stringify({ error }))
    this.note(`kosa8: ${error.message.replaceAll('\n', ' ')}`)
    if (error.hint !== undefined) this.note(`hint: ${error.hint.replaceAll('\n', ' ')}`)
  }
}

/** Tools for one command of this process. */
export function createTools(host: CliHost, startsDaemon = true): CommandTools {
  const { home, remote } = host.settings
  return { host, client: new Kosa8Client({ home, startsDaemon, ...remote }), output: new Output(host) }
}
