/**
 * A client's connection to the daemon of one home: found, started or replaced when needed.
 *
 * Owns: the version handshake, when a daemon is started, and which calls are sent a second time (only those
 * that never reached a daemon, and reads). Does not own the wire (`protocol/client.ts`).
 */
import type { Readable } from 'node:stream'
import { childEnvironment, type Settings } from '../config/environment.js'
import { Kosa8Error } from '../errors/kosa8-error.js'
import {
  callMethod, openExecSocket, openStream, readBounded, type CallInput, type StreamRequest, type UpgradedConnection,
} from '../protocol/client.js'
import type { RemoteDaemon } from '../model/remote-daemon.js'
import type { DaemonAddress } from '../protocol/address.js'
import { refuseRemoteCall } from '../protocol/local-calls.js'
import { METHODS, type MethodName, type ResponseOf } from '../protocol/methods.js'
import { BUILD, VERSION, handshakeSchema, isSameBuild, tellBuild, type Handshake } from '../protocol/status.js'
import { daemonLogOf, startDaemon, waitForExit } from './daemon-process.js'

/** How long a daemon may take to say what it is, milliseconds; it may be waiting for a busy machine. */
const HANDSHAKE_DEADLINE_MS = 15_000

/** How a client finds its daemon. */
export interface ConnectionOptions {
  settings: Settings
  /** False: a missing daemon is an error, none is started. */
  startsDaemon: boolean
}

/** Calls to the daemon of one home. */
export class DaemonConnection {
  private ready: Promise<void> | null = null

  constructor(readonly options: ConnectionOptions) {}

  get address(): DaemonAddress {
    return this.remote ?? this.options.settings.socketPath
  }

  /** The daemon of another host, if it is one. */
  get remote(): RemoteDaemon | null {
    return this.options.settings.remote
  }

  /** Says early what a daemon of another host would refuse. @throws LOCAL_ONLY */
  refuseIfRemote(name: MethodName, body: unknown): void {
    if (this.remote !== null) refuseRemoteCall(name, body)
  }

  /** Calls a method; see {@link callMethod} for errors. */
  async call<Name extends MethodName>(name: Name, input: CallInput<Name>, signal?: AbortSignal): Promise<ResponseOf<Name>> {
    this.refuseIfRemote(name, (input as { body?: unknown }).body)
    return this.withDaemon(METHODS[name].verb === 'GET', () => callMethod(this.address, name, input, signal))
  }

  /** Opens a stream; see {@link openStream} for errors. */
  async stream(wanted: StreamRequest): Promise<Readable> {
    return this.withDaemon(wanted.verb === 'GET', () => openStream(this.address, wanted))
  }

  async execSocket(sandbox: string): Promise<UpgradedConnection> {
    return this.withDaemon(false, () => openExecSocket(this.address, sandbox))
  }

  /** Makes sure that a daemon of this version answers. @throws DAEMON_UNREACHABLE, DAEMON_VERSION. */
  async ensureDaemon(): Promise<void> {
    this.ready ??= this.prepare().catch((error: unknown) => {
      this.ready = null
      throw error
    })
    return this.ready
  }

  /** What the daemon says of itself in the form every version shares; null when none answers. */
  async handshake(): Promise<Handshake | null> {
    return this.greet().catch((error: unknown) => {
      if (Kosa8Error.isInstance(error) && error.code === 'DAEMON_UNREACHABLE' && error.details['isSlow'] !== true) return null
      throw error
    })
  }

  private async greet(): Promise<Handshake> {
    try {
      const signal = AbortSignal.timeout(HANDSHAKE_DEADLINE_MS)
      const answer = await openStream(this.address, { verb: 'GET', path: METHODS.status.path, signal })
      return handshakeSchema.parse(JSON.parse((await readBounded(answer)).toString('utf8')))
    } catch (error) {
      if (!Kosa8Error.isInstance(error) || error.code !== 'CANCELLED') throw error
      throw new Kosa8Error('DAEMON_UNREACHABLE', `${this.remote === null ? `a daemon holds ${this.address as string} but` : this.remote.url} did not answer within ${HANDSHAKE_DEADLINE_MS / 1000} s`, {
        hint: this.remote === null ? `its log is ${daemonLogOf(this.options.settings.home)}` : REMOTE_HINT,
        details: { isSlow: true },
      })
    }
  }

  /** Asks the daemon to stop and waits until it has. Machines go on running. */
  async stopDaemon(found: Handshake): Promise<void> {
    this.refuseIfRemote('stop', {})
    await openStream(this.address, { verb: METHODS.stop.verb, path: METHODS.stop.path, json: {} })
    await waitForExit(found.pid)
    this.ready = null
  }

  private async withDaemon<T>(isRead: boolean, call: () => Promise<T>): Promise<T> {
    await this.ensureDaemon()
    try {
      return await call()
    } catch (error) {
      if (!Kosa8Error.isInstance(error) || error.code !== 'DAEMON_UNREACHABLE') throw error
      this.ready = null
      if (!isRead && error.details['reached'] !== false) throw error
      await this.ensureDaemon()
      return await call()
    }
  }

  private async prepare(): Promise<void> {
    if (this.remote !== null) return this.prepareRemote(this.remote)
    const found = await this.handshake()
    if (found !== null && isSameBuild(found)) return
    if (!this.options.startsDaemon && found === null) {
      throw new Kosa8Error('DAEMON_UNREACHABLE', 'the daemon is not running', { hint: 'start it with `kosa8 daemon start`' })
    }
    if (found !== null) await this.stopOther(found)
    const { settings } = this.options
    await startDaemon({
      settings,
      env: childEnvironment(settings),
      answers: async () => {
        const started = await this.handshake()
        if (started !== null && !isSameBuild(started)) throw outdated(started)
        return started !== null
      },
    })
  }

  private async prepareRemote(remote: RemoteDaemon): Promise<void> {
    const found = await this.greet().catch((error: unknown) => { throw explainSilence(error, remote) })
    if (!isSameBuild(found)) throw otherBuild(found, remote)
  }

  /** A daemon of another build may be replaced when that disturbs nothing. */
  private async stopOther(found: Handshake): Promise<void> {
    const { sandboxes, runs } = found.running
    if (sandboxes + runs > 0 || !this.options.startsDaemon) {
      throw new Kosa8Error('DAEMON_VERSION',
        `the running daemon is of version ${tellBuild(found)}, this is ${tellBuild(OWN)}, and it has ${sandboxes} sandboxes and ${runs} runs`, {
          hint: `${runs > 0 ? 'when its runs are done, ' : ''}run \`kosa8 daemon stop\`: sandboxes go on running, and are found again by the next daemon`,
          details: { daemon: found.version, client: VERSION },
        })
    }
    await this.stopDaemon(found)
  }
}

const REMOTE_HINT = 'see `kosa8 daemon status` on its host; unset KOSA8_URL to use the daemon of this one'

/** Why a daemon of another host does not answer; what it answered itself stays as it is. */
function explainSilence(thrown: unknown, { url }: RemoteDaemon): unknown {
  if (!Kosa8Error.isInstance(thrown) || thrown.code !== 'DAEMON_UNREACHABLE' || thrown.details['isSlow'] === true) return thrown
  const cause = thrown.cause as NodeJS.ErrnoException | undefined
  return new Kosa8Error('DAEMON_UNREACHABLE', `no daemon answers at ${url}: ${cause?.message ?? thrown.message}`, {
    hint: cureForSilence(new URL(url), cause?.code ?? ''),
    details: { reached: false }, cause: thrown,
  })
}

/** @param code of the failed connection, Node's or OpenSSL's */
function cureForSilence({ host, hostname, protocol }: URL, code: string): string {
  if (code.includes('ALTNAME')) return `name the host as its certificate does, or have one made for ${hostname}`
  if (/CERT|SIGNED|ISSUER|SIGNATURE/.test(code)) return 'if the certificate is right, trust it: NODE_EXTRA_CA_CERTS=FILE'
  if (protocol === 'https:' && /SSL|EPROTO/.test(code)) return 'a daemon that listens without --tls-cert is reached with http://, from its own host or through ssh -L'
  if (protocol === 'http:' && code === 'ECONNRESET') return `a daemon that listens with --tls-cert is reached with https://${host}`
  return `start it on its host: kosa8 daemon start --listen ${host}; or unset KOSA8_URL to use the daemon of this one`
}

function otherBuild(found: Handshake, { url }: RemoteDaemon): Kosa8Error {
  return new Kosa8Error('DAEMON_VERSION', `the daemon at ${url} is of version ${tellBuild(found)}, this is ${tellBuild(OWN)}`, {
    hint: 'use the same build of kosa8 on both hosts', details: { daemon: found.version, client: VERSION },
  })
}

const OWN = { version: VERSION, build: BUILD }

/** A daemon is always started from the package as it is now; this process may be older than that. */
function outdated(started: Handshake): Kosa8Error {
  return new Kosa8Error('DAEMON_VERSION',
    `kosa8 was built anew while this program ran: the daemon is of version ${tellBuild(started)}, this is ${tellBuild(OWN)}`, {
      hint: 'start this program again', details: { daemon: started.version, client: VERSION },
    })
}
