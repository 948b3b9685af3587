/**
 * The client: everything a program can ask of kosa8.
 *
 * Owns: how a client is set up and what hangs below it. Calls go through `connection.ts`, which starts the
 * daemon when needed.
 */
import { readSettings, type Settings } from '../config/environment.js'
import type { ImageDescription, RemovedImages, RestoredSandbox, SandboxDescription } from '../protocol/sandboxes.js'
import { parseDaemonToken, parseDaemonUrl, type RemoteDaemon } from '../model/remote-daemon.js'
import type { MethodName } from '../protocol/methods.js'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { Handshake, DaemonStatus, ListenRequest, Listening } from '../protocol/status.js'
import { normalisePublicKey } from '../util/ed25519.js'
import { daemonSocketOf } from '../util/socket-path.js'
import { checkpointFileOf, FileCheckpointStore, type CheckpointRecord, type CheckpointStore } from './checkpoint-store.js'
import { ApprovalsClient, type WithApproval } from './approvals.js'
import { CheckpointsClient, type CheckpointOptions, type CheckpointResult, type RewindOptions, type RewindResult } from './checkpoints.js'
import { DaemonConnection } from './connection.js'
import { tellSteps, type CreationOptions } from './creation-steps.js'
import { RunsClient } from './runs.js'
import { SandboxHandle, type DeletedSandbox } from './sandbox.js'

/** How a client is set up; all of it may be left out. */
export interface Kosa8ClientOptions {
  /** Folder of all state, absolute; KOSA8_HOME or `~/.kosa8` by default. */
  home?: string
  /** Address of a daemon on another host, `https://HOST:PORT`; KOSA8_URL by default, unless `home` is given. */
  url?: string
  /** Its token; KOSA8_TOKEN by default. */
  token?: string
  /** False: do not start a daemon where none runs. */
  startsDaemon?: boolean
  /** Where labels and order of checkpoints are kept; the file of the command line by default. */
  checkpointStore?: CheckpointStore
}

/** What a new sandbox is like. */
export interface CreateSandboxOptions {
  name: string
  /** `base` by default. */
  image?: string
  /** Memory in MiB; 1024 by default. */
  memMb?: number
  /** 1 by default. */
  cpus?: number
  /** Size of the disk in MiB; the image's by default, and not below it. */
  diskMb?: number
  /** Processes of all its commands together, threads counted; 4096 by default. */
  maxProcesses?: number
  /** `deny` (the default), `allow`, or hosts such as `registry.example,*.example.org,127.0.0.1:8080`, also as an array. */
  egress?: string | string[]
  /** Repository on the host that is put into the workspace. */
  repository?: string
  /** Public key, PEM: rewinding, removing and changing egress then need approvals signed with its private half. None by default. */
  approvals?: string
}

/** A client of the daemon of one home. */
export class Kosa8Client {
  readonly settings: Settings
  readonly runs: RunsClient
  readonly checkpoints: CheckpointsClient
  /** For the person who gives approvals. */
  readonly approvals: ApprovalsClient
  private readonly connection: DaemonConnection

  constructor(options: Kosa8ClientOptions = {}) {
    const settings = readSettings()
    const home = options.home ?? settings.home
    this.settings = { ...settings, home, socketPath: daemonSocketOf(home), remote: remoteOf(options, settings) }
    this.connection = new DaemonConnection({ settings: this.settings, startsDaemon: options.startsDaemon ?? true })
    this.runs = new RunsClient(this.connection)
    this.approvals = new ApprovalsClient(this.connection)
    const store = options.checkpointStore ?? new FileCheckpointStore(checkpointFileOf(this.settings.home, this.settings.remote?.url))
    this.checkpoints = new CheckpointsClient(this.connection, store)
  }

  /** Makes sure that a daemon answers. @throws DAEMON_UNREACHABLE, DAEMON_VERSION. */
  async connect(): Promise<void> {
    await this.connection.ensureDaemon()
  }

  async status(): Promise<DaemonStatus> {
    return this.connection.call('status', {})
  }

  /** The running daemon of any version, without starting one; null when there is none. */
  async findDaemon(): Promise<Handshake | null> {
    return this.connection.handshake()
  }

  /** Says early what a daemon of another host would refuse, e.g. `startRun`. @throws LOCAL_ONLY */
  refuseIfRemote(call: MethodName): void {
    this.connection.refuseIfRemote(call, undefined)
  }

  /** Lets the daemon listen on TCP too, until it ends. */
  async listen(request: ListenRequest): Promise<Listening> {
    return this.connection.call('listen', { body: request })
  }

  /** Makes the daemon stay until it is told to stop; by itself it ends once it has nothing to look after. */
  async keepDaemon(): Promise<void> {
    await this.connection.call('stay', {})
  }

  /** Stops the daemon and waits for its end; machines go on running. @returns false when none ran. */
  async stopDaemon(): Promise<boolean> {
    const found = await this.connection.handshake()
    if (found === null) return false
    await this.connection.stopDaemon(found)
    return true
  }

  /** Creates a sandbox and starts it. @throws SANDBOX_EXISTS, IMAGE_UNKNOWN, MEMORY_INSUFFICIENT, … */
  async createSandbox(options: CreateSandboxOptions, { signal, onStep }: CreationOptions = {}): Promise<SandboxDescription> {
    const { memMb = 1024, image = 'base', cpus = 1, egress = 'deny', name, repository, diskMb, maxProcesses, approvals } = options
    const body = {
      name, image, memoryMib: memMb, cpus, egress: [egress].flat().join(','),
      ...(repository === undefined ? {} : { repository }),
      ...(diskMb === undefined ? {} : { diskMib: diskMb }),
      ...(maxProcesses === undefined ? {} : { processesMax: maxProcesses }),
      ...(approvals === undefined ? {} : { approvals: normalisePublicKey(approvals) }),
    }
    const made = this.connection.call('createSandbox', { body }, signal)
    const describe = (ended: AbortSignal) => this.connection.call('getSandbox', { params: { name } }, ended)
    const sandbox = await (onStep === undefined ? made : tellSteps(made, describe, onStep))
    // Records of an earlier sandbox of that name, whose end this store was not told.
    await this.checkpoints.forgetSandbox(name)
    return sandbox
  }

  async listSandboxes(): Promise<SandboxDescription[]> {
    return this.connection.call('listSandboxes', {})
  }

  /** A sandbox by name; nothing is asked until it is used. */
  sandbox(name: string): SandboxHandle {
    return new SandboxHandle({ connection: this.connection, checkpoints: this.checkpoints }, name)
  }

  /** Destroys a sandbox and its checkpoints. */
  async deleteSandbox(name: string, options?: WithApproval): Promise<DeletedSandbox> {
    return this.sandbox(name).delete(options)
  }

  /** Saves a running sandbox: memory, processes and disks. It goes on running. */
  async checkpoint(name: string, options?: CheckpointOptions): Promise<CheckpointResult> {
    return this.checkpoints.take(name, options)
  }

  /** Oldest first. */
  async listCheckpoints(name: string): Promise<CheckpointRecord[]> {
    return this.checkpoints.list(name)
  }

  /** Puts a sandbox back to a checkpoint, under the same name; see {@link CheckpointsClient.rewind}. */
  async rewind(name: string, options?: RewindOptions): Promise<RewindResult> {
    return this.checkpoints.rewind(name, options)
  }

  /** Puts a sandbox back to a snapshot by its id, running or not; the list of checkpoints is left as it is. */
  async restoreSnapshot(name: string, snapshot: string, options?: WithApproval): Promise<RestoredSandbox> {
    return this.checkpoints.restore(name, snapshot, options)
  }

  async listImages(): Promise<ImageDescription[]> {
    return this.connection.call('listImages', {})
  }

  /** @throws IMAGE_UNKNOWN, IMAGE_IN_USE. */
  async deleteImage(name: string): Promise<void> {
    await this.connection.call('deleteImage', { params: { name } })
  }

  /** Removes the versions of an image that are neither the newest nor in use. @throws IMAGE_UNKNOWN. */
  async deleteOldImages(name: string): Promise<RemovedImages> {
    return this.connection.call('deleteOldImages', { params: { name } })
  }
}

/** Where the daemon is, unless it is this host's own. */
function remoteOf({ url, token, home }: Kosa8ClientOptions, settings: Settings): RemoteDaemon | null {
  if (url === undefined) return home === undefined ? settings.remote : null
  const known = token ?? settings.remote?.token
  if (known === undefined) throw new Kosa8Error('CONFIG_INVALID', 'a client with `url` needs `token` too')
  return { url: parseDaemonUrl(url, 'url'), token: parseDaemonToken(known, 'token') }
}
