/**
 * The contract between kosa8 and a strategy: reusable code that turns a clone at the checkpoint
 * into a clone with a proposed change. Published as `@kosa8/sdk/strategy`.
 *
 * Owns: types only. Strategies see the clone through this file and nothing else.
 */

/** How a command in the clone ended. */
export interface StrategyCommandResult {
  /** Exit status; 128 + n when signal n ended the command. */
  exitCode: number
  /** At most the last 1 MiB of each stream. */
  stdout: string
  stderr: string
}

/** How to run one command in the clone. */
export interface StrategyCommandOptions {
  /** Extra environment variables. */
  env?: Record<string, string>
  /** Working directory in the guest; the workspace by default. */
  cwd?: string
  /** Bytes for standard input; empty and closed by default. */
  stdin?: string | Uint8Array
}

/** What a strategy gets: its clone, its parameters, and ways to stop and to report. */
export interface StrategyContext {
  /** Name of the approach this trial belongs to. */
  approach: string
  /** Counts from 1. */
  repeat: number
  /** The approach's parameters, matrix values included. */
  parameters: Readonly<Record<string, unknown>>
  /** Path of the repository in the guest. */
  workspace: string
  /** Aborted when the trial is cancelled or its time is up; commands in the clone are killed then. */
  signal: AbortSignal
  /** Runs a command in the clone, without a shell; its output goes to the trial's log as it comes. */
  exec(argv: string[], options?: StrategyCommandOptions): Promise<StrategyCommandResult>
  /** Writes a file in the guest; `path` is absolute or relative to the workspace. */
  writeFile(path: string, content: string | Uint8Array, mode?: number): Promise<void>
  /** Reads a regular file of the guest, at most 16 MiB. */
  readFile(path: string): Promise<Uint8Array>
  /** Adds a line to the trial's log. */
  log(line: string): void
}

/** What a strategy says of its own work. */
export interface StrategyOutcome {
  /** 0 when the strategy believes it is done; anything else marks the trial as failed. */
  exitCode: number
  usage?: { inputTokens?: number; outputTokens?: number; costUsd?: number }
  /** Short remarks for the report. */
  notes?: string[]
}

/** A strategy module's default export. */
export interface Strategy {
  /**
   * Checks the parameters before anything starts.
   * @throws Error whose message says which parameter is wrong and what is allowed.
   */
  validate?(parameters: Readonly<Record<string, unknown>>): void
  run(context: StrategyContext): Promise<StrategyOutcome>
}
