/** One sandbox by name: commands, files, checkpoints. Made by {@link Kosa8Client.sandbox}; asks nothing by itself. */
import type { Readable } from 'node:stream'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { fillPath } from '../protocol/methods.js'
import { STREAM_PATHS } from '../protocol/streams.js'
import type { ExecExit, ExecRequest, RestoredSandbox, SandboxDescription, SnapshotDescription } from '../protocol/sandboxes.js'
import type { DaemonConnection } from './connection.js'
import { startProcess, type SandboxProcess } from './exec.js'

/** Most output of each stream that {@link SandboxHandle.exec} keeps, in bytes. */
export const EXEC_OUTPUT_BYTES_MAX = 16 * 1024 * 1024

/** How a command ended, with its output as text. */
export interface ExecResult extends ExecExit {
  stdout: string
  stderr: string
}

/** A sandbox of the daemon. Unknown names: SANDBOX_UNKNOWN. */
export class SandboxHandle {
  constructor(private readonly connection: DaemonConnection, readonly name: string) {}

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
  async exec(argv: string[], options: Omit<ExecRequest, 'argv' | 'stdin' | 'pty'> = {}): Promise<ExecResult> {
    const process = await this.spawn({ ...options, argv })
    try {
      const [stdout, stderr, exit] = await Promise.all([readText(process.stdout), readText(process.stderr), process.exited])
      return { ...exit, stdout, stderr }
    } catch (error) {
      process.close()
      throw error
    }
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

  /** Takes a snapshot under the next free id `<sandbox>-ckpt-<n>`; the sandbox goes on. */
  async checkpoint(options: { label?: string } = {}): Promise<SnapshotDescription> {
    const id = nextCheckpointId(this.name, await this.checkpoints())
    return this.connection.call('createSnapshot', { params: { name: this.name }, body: { id, ...options } })
  }

  /** Oldest first. */
  async checkpoints(): Promise<SnapshotDescription[]> {
    return this.connection.call('listSnapshots', { params: { name: this.name } })
  }

  async deleteCheckpoint(id: string): Promise<void> {
    await this.connection.call('deleteSnapshot', { params: { name: this.name, id } })
  }

  /** Puts the sandbox back to a snapshot, under the same name. */
  async restore(snapshot: string): Promise<RestoredSandbox> {
    return this.connection.call('restoreSnapshot', { params: { name: this.name }, body: { snapshot } })
  }

  /** Destroys the sandbox and its snapshots. */
  async delete(): Promise<void> {
    await this.connection.call('deleteSandbox', { params: { name: this.name } })
  }

  private filePath(query: Record<string, string>): string {
    return `${fillPath(STREAM_PATHS.sandboxFile, { name: this.name })}?${new URLSearchParams(query).toString()}`
  }
}

/** The id after the highest there is, so that an id is not used twice while its like exist. */
function nextCheckpointId(sandbox: string, existing: SnapshotDescription[]): string {
  const prefix = `${sandbox}-ckpt-`
  const numbers = existing.map(({ id }) => (id.startsWith(prefix) ? Number(id.slice(prefix.length)) : 0)).filter(Number.isInteger)
  return `${prefix}${Math.max(0, ...numbers) + 1}`
}

async function readText(stream: Readable): Promise<string> {
  const chunks: Buffer[] = []
  let sizeBytes = 0
  for await (const chunk of stream) {
    sizeBytes += (chunk as Buffer).length
    if (sizeBytes > EXEC_OUTPUT_BYTES_MAX) {
      throw new Kosa8Error('LIMIT_EXCEEDED', `the command printed more than ${EXEC_OUTPUT_BYTES_MAX} bytes`, { hint: 'use spawn() and read its streams' })
    }
    chunks.push(chunk as Buffer)
  }
  return Buffer.concat(chunks).toString('utf8')
}
