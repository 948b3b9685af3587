/** One sandbox by name: commands, files, checkpoints. Made by {@link Kosa8Client.sandbox}; asks nothing by itself. */
import type { Readable } from 'node:stream'
import { Kosa8Error, parseError } from '../errors/kosa8-error.js'
import { fillPath } from '../protocol/methods.js'
import { STREAM_PATHS } from '../protocol/streams.js'
import type { ExecExit, ExecRequest, SandboxDescription } from '../protocol/sandboxes.js'
import type { WithApproval } from './approvals.js'
import type { CheckpointRecord } from './checkpoint-store.js'
import type { CheckpointOptions, CheckpointResult, CheckpointsClient, RewindOptions, RewindResult } from './checkpoints.js'
import type { DaemonConnection } from './connection.js'
import { startProcess, type SandboxProcess } from './exec.js'
import { readText } from './read-text.js'

/** How a command ended, with its output as text. */
export interface ExecResult {
  stdout: string
  stderr: string
  /** As a shell has it: the command's own status, or 128 + the signal that ended it. */
  exitCode: number
  /** Number of the signal that ended it; null when none did. */
  signal: number | null
}

/** Where and as whom a command runs. */
export type ExecOptions = Omit<ExecRequest, 'argv' | 'stdin' | 'pty'>

/** A sandbox that was destroyed. */
export interface DeletedSandbox {
  ok: true
  /** Checkpoints of this client's store that went with it. */
  checkpoints_dropped: number
}

/** How many clones, or their names. */
export type ForkOptions = { count: number } | { names: string[] }

/** One clone of a fork: a sandbox, or why there is none. */
export interface ForkedSandbox {
  name: string
  sandbox: SandboxHandle | null
  error: Kosa8Error | null
}

/** What a handle works with. */
export interface SandboxHandleParts {
  connection: DaemonConnection
  checkpoints: CheckpointsClient
}

/** Starts a command that nobody waits for, and prints its process number. */
const START_SCRIPT = 'out=$1; shift; "$@" </dev/null >>"$out" 2>&1 & echo $!'

/** A sandbox of the daemon. Unknown names: SANDBOX_UNKNOWN. */
export class SandboxHandle {
  private readonly connection: DaemonConnection

  constructor(private readonly parts: SandboxHandleParts, readonly name: string) {
    this.connection = parts.connection
  }

  async describe(): Promise<SandboxDescription> {
    return this.connection.call('getSandbox', { params: { name: this.name } })
  }

  /** Starts a command, its streams in the caller's hands. */
  async spawn(command: ExecRequest): Promise<SandboxProcess> {
    return startProcess(await this.connection.execSocket(this.name), command)
  }

  /**
   * Runs a command to its end and returns its output.
   * @throws LIMIT_EXCEEDED when it prints more than 16 MiB to one stream; it is killed then.
   */
  async exec(argv: string[], options: ExecOptions = {}): Promise<ExecResult> {
    const process = await this.spawn({ ...options, argv })
    try {
      const [stdout, stderr, exit] = await Promise.all([readText(process.stdout), readText(process.stderr), process.exited])
      return { stdout, stderr, exitCode: exitCodeOf(exit), signal: exit.signal }
    } catch (error) {
      process.close()
      throw error
    }
  }

  /**
   * Starts a command that goes on running by itself, also when this program ends; checkpoints take it along.
   * It has no input, and its output is added to the file `output` of the sandbox, or dropped.
   * @returns its process number in the sandbox
   */
  async start(argv: string[], options: ExecOptions & { output?: string } = {}): Promise<{ pid: number }> {
    const { output = '/dev/null', ...rest } = options
    const { stdout, stderr, exitCode } = await this.exec(['sh', '-c', START_SCRIPT, 'sh', output, ...argv], rest)
    const pid = Number(stdout.trim())
    if (exitCode === 0 && Number.isInteger(pid) && pid > 0) return { pid }
    throw new Kosa8Error('GUEST_COMMAND_FAILED', `${argv[0] ?? ''} could not be started in ${this.name}: ${stderr.trim() || `status ${exitCode}`}`)
  }

  /** Streams a file out; `path` is absolute or relative to the workspace. */
  async readFile(path: string): Promise<Readable> {
    return this.connection.stream({ verb: 'GET', path: this.filePath({ path }) })
  }

  /** Writes a file; `mode` are permission bits. */
  async writeFile(path: string, content: Readable | Uint8Array | string, mode?: number): Promise<void> {
    const query = { path, ...(mode === undefined ? {} : { mode: mode.toString(8).padStart(3, '0') }) }
    const answer = await this.connection.stream({ verb: 'PUT', path: this.filePath(query), content })
    answer.resume()
  }

  /** Changes what it may reach: `deny`, or hosts. @throws EGRESS_FIXED from or to `allow`, whose network card is part of the machine. */
  async setEgress(egress: string | string[], { approval }: WithApproval = {}): Promise<SandboxDescription> {
    return this.connection.call('setEgress', { params: { name: this.name }, body: { egress: [egress].flat().join(',') }, approval })
  }

  /** Saves memory, processes and disks under the next id `<sandbox>-ckpt-<n>`; the sandbox goes on. */
  async checkpoint(options?: CheckpointOptions): Promise<CheckpointResult> {
    return this.parts.checkpoints.take(this.name, options)
  }

  /** Oldest first. */
  async checkpoints(): Promise<CheckpointRecord[]> {
    return this.parts.checkpoints.list(this.name)
  }

  /** Puts this sandbox back to a checkpoint; see {@link CheckpointsClient.rewind}. */
  async rewind(options?: RewindOptions): Promise<RewindResult> {
    return this.parts.checkpoints.rewind(this.name, options)
  }

  /** Removes a checkpoint by id or label. */
  async deleteCheckpoint(selector: string, options?: WithApproval): Promise<CheckpointRecord> {
    return this.parts.checkpoints.remove(this.name, selector, options)
  }

  /**
   * Clones this running sandbox, which goes on: all clones start from one and the same instant.
   * @param options names of the clones, or how many (named `<sandbox>-fork-<n>` then)
   * @returns one entry per clone; one that fails does not end the others
   */
  async fork(options: ForkOptions): Promise<ForkedSandbox[]> {
    const names = 'names' in options ? options.names : await this.freeNames(options.count)
    const entries = await this.connection.call('forkSandbox', { params: { name: this.name }, body: { names } })
    return entries.map(({ name, error }) => error === null
      ? { name, sandbox: new SandboxHandle(this.parts, name), error: null }
      : { name, sandbox: null, error: parseError(error) })
  }

  /** Destroys the sandbox and its checkpoints. */
  async delete({ approval }: WithApproval = {}): Promise<DeletedSandbox> {
    const dropped = await this.checkpoints()
    await this.connection.call('deleteSandbox', { params: { name: this.name }, approval })
    await this.parts.checkpoints.forgetSandbox(this.name)
    return { ok: true, checkpoints_dropped: dropped.length }
  }

  private async freeNames(count: number): Promise<string[]> {
    const taken = new Set((await this.connection.call('listSandboxes', {})).map(({ name }) => name))
    const names: string[] = []
    for (let n = 1; names.length < count; n += 1) {
      const name = `${this.name}-fork-${n}`
      if (!taken.has(name)) names.push(name)
    }
    return names
  }

  private filePath(query: Record<string, string>): string {
    return `${fillPath(STREAM_PATHS.sandboxFile, { name: this.name })}?${new URLSearchParams(query).toString()}`
  }
}

/** The status a shell would give. */
export function exitCodeOf({ code, signal }: ExecExit): number {
  return code ?? 128 + (signal ?? 0)
}
