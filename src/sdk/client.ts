/**
 * The client: everything a program can ask of kosa8.
 *
 * Owns: how a client is set up and what hangs below it. Calls go through `connection.ts`, which starts the
 * daemon when needed.
 */
import { readSettings, type Settings } from '../config/environment.js'
import { socketPathOf } from '../util/socket-path.js'
import type { ImageDescription, SandboxDescription } from '../protocol/sandboxes.js'
import type { Handshake, DaemonStatus } from '../protocol/status.js'
import { DaemonConnection } from './connection.js'
import { RunsClient } from './runs.js'
import { SandboxHandle } from './sandbox.js'

/** How a client is set up; all of it may be left out. */
export interface Kosa8ClientOptions {
  /** Folder of all state, absolute; KOSA8_HOME or `~/.kosa8` by default. */
  home?: string
  /** False: do not start a daemon where none runs. */
  startsDaemon?: boolean
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
  /** `deny` by default. */
  egress?: 'deny' | 'allow'
  /** Repository on the host that is put into the workspace. */
  repository?: string
}

/** A client of the daemon of one home. */
export class Kosa8Client {
  readonly settings: Settings
  readonly runs: RunsClient
  private readonly connection: DaemonConnection

  constructor(options: Kosa8ClientOptions = {}) {
    const settings = readSettings()
    this.settings = options.home === undefined ? settings : {
      ...settings, home: options.home, socketPath: socketPathOf(options.home, 'daemon.sock'),
    }
    this.connection = new DaemonConnection({ settings: this.settings, startsDaemon: options.startsDaemon ?? true })
    this.runs = new RunsClient(this.connection)
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

  /** Stops the daemon and waits for its end; machines go on running. @returns false when none ran. */
  async stopDaemon(): Promise<boolean> {
    const found = await this.connection.handshake()
    if (found === null) return false
    await this.connection.stopDaemon(found)
    return true
  }

  async createSandbox(options: CreateSandboxOptions, signal?: AbortSignal): Promise<SandboxDescription> {
    const { memMb = 1024, image = 'base', cpus = 1, egress = 'deny', name, repository } = options
    const body = { name, image, memoryMib: memMb, cpus, egress, ...(repository === undefined ? {} : { repository }) }
    return this.connection.call('createSandbox', { body }, signal)
  }

  async listSandboxes(): Promise<SandboxDescription[]> {
    return this.connection.call('listSandboxes', {})
  }

  /** A sandbox by name; nothing is asked until it is used. */
  sandbox(name: string): SandboxHandle {
    return new SandboxHandle(this.connection, name)
  }

  async deleteSandbox(name: string): Promise<void> {
    await this.sandbox(name).delete()
  }

  async listImages(): Promise<ImageDescription[]> {
    return this.connection.call('listImages', {})
  }

  /** @throws IMAGE_UNKNOWN, IMAGE_IN_USE. */
  async deleteImage(name: string): Promise<void> {
    await this.connection.call('deleteImage', { params: { name } })
  }
}
