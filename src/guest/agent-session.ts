/**
 * A session with the guest agent over a byte channel: implements the contract in `session.ts`.
 *
 * Owns: the beginning (HELLO), the table of commands, requests with deadlines, the end. Connections that the guest
 * begins are in `guest-connections.ts`. The guest is
 * hostile: whatever it sends can end the session with GUEST_PROTOCOL and do nothing else.
 * Callers: `sandbox`, `workers`.
 */
import { randomBytes } from 'node:crypto'
import type { Duplex, Readable } from 'node:stream'
import { Kosa8Error, toKosa8Error } from '../errors/kosa8-error.js'
import { createDeferred, type Deferred } from '../util/deferred.js'
import { AgentProcess, describeErrno } from './agent-process.js'
import { GUEST_STREAMS, GuestConnections } from './guest-connections.js'
import { listGuestFiles, readGuestFile, writeGuestFile } from './files.js'
import {
  AckScanner, createProtocolError, encodeFrame, encodeHello, FLAG_MORE, FRAME_TYPE, FrameReader, NONCE_BYTES,
  PAYLOAD_BYTES_MAX, type Frame,
} from './frames.js'
import {
  decodeAck, decodeNumbers, decodeU32, encodeExec, encodeIdentity, encodeTimeOfDay, encodeU16, type AgentFacts,
} from './messages.js'
import type {
  GuestCommand, GuestFileEntry, GuestGateway, GuestIdentity, GuestProcess, GuestSession, IdentityReport,
} from './session.js'
import { OUTPUT_WINDOW_BYTES } from './streams.js'

/** Limits of a session, milliseconds. */
export interface SessionOptions {
  /** For the agent's first answer; default 30,000. A booting machine answers when its agent is up. */
  helloTimeoutMs?: number
  /** After this long without an answer HELLO is sent again, then after twice as long, and so on; default 3,000. */
  helloAgainMs?: number
  /** For every later answer (not for the end of a command); default 60,000. */
  requestTimeoutMs?: number
  /** Takes the connections that programs make before `setGateway` is called: a restored guest may be listening. */
  gateway?: GuestGateway | null
}

/** A session with what the agent said of itself. */
export interface AgentSession extends GuestSession {
  readonly facts: AgentFacts
  /** Asks for a sign of life. */
  ping(): Promise<void>
}

const HELLO_TIMEOUT_MS = 30_000
const HELLO_AGAIN_MS = 3_000
const REQUEST_TIMEOUT_MS = 60_000

/**
 * Begins a session. Bytes of an earlier session, whole or cut off, are skipped on both sides. The
 * channel belongs to the session from here on, and is destroyed when it ends.
 * @throws Kosa8Error GUEST_UNREACHABLE when no answer comes in time, GUEST_PROTOCOL for a wrong one.
 */
export async function openGuestSession(channel: Duplex, options: SessionOptions = {}): Promise<AgentSession> {
  let scanner: AckScanner
  let again: NodeJS.Timeout | undefined
  // What reaches a port that is just being closed by its former host is lost. Each greeting has its own nonce and only
  // the last one's answer counts, so none is still on its way when the session begins; the growing pause lets slow guests answer.
  const greet = (pauseMs: number): void => {
    const nonce = randomBytes(NONCE_BYTES)
    scanner = new AckScanner(nonce)
    channel.write(encodeHello(nonce))
    again = setTimeout(() => greet(pauseMs * 2), pauseMs)
  }
  const acknowledged = createDeferred<AgentSession>()
  const onData = (chunk: Buffer): void => {
    try {
      const found = scanner.push(chunk)
      if (found === null) return
      const facts = decodeAck(found.frame.payload)
      channel.off('data', onData)
      acknowledged.resolve(new Session(channel, facts, options, found.rest))
    } catch (error) {
      acknowledged.reject(error)
    }
  }
  const onGone = (): void => acknowledged.reject(createUnreachable('the channel to the guest agent was closed'))
  const timeoutMs = options.helloTimeoutMs ?? HELLO_TIMEOUT_MS
  const timer = setTimeout(
    () => acknowledged.reject(createUnreachable(`the guest agent did not answer within ${timeoutMs} ms`)), timeoutMs)
  channel.on('error', onGone)
  channel.once('close', onGone)
  channel.on('data', onData)
  greet(options.helloAgainMs ?? HELLO_AGAIN_MS)
  try {
    return await acknowledged.promise
  } catch (error) {
    channel.destroy()
    throw error
  } finally {
    clearTimeout(timer)
    clearTimeout(again)
    channel.off('data', onData)
  }
}

function createUnreachable(message: string): Kosa8Error {
  return new Kosa8Error('GUEST_UNREACHABLE', message, { hint: 'check with `kosa8 ls` whether the machine is still running' })
}

class Session implements AgentSession {
  readonly ended: Promise<string>
  private readonly reader = new FrameReader()
  private readonly processes = new Map<number, AgentProcess>()
  private readonly requests = new Map<number, { type: number; answer: Deferred<Buffer> }>()
  private readonly end_ = createDeferred<string>()
  private readonly connections: GuestConnections
  private readonly requestTimeoutMs: number
  private isListening: boolean
  private roomWaiters: (() => void)[] = []
  private lastStream = 0
  private failure: Kosa8Error | null = null

  constructor(
    private readonly channel: Duplex,
    readonly facts: AgentFacts,
    options: SessionOptions,
    rest: Buffer,
  ) {
    this.ended = this.end_.promise
    this.requestTimeoutMs = options.requestTimeoutMs ?? REQUEST_TIMEOUT_MS
    this.isListening = facts.isListening
    this.connections = new GuestConnections({
      send: (type, flags, stream, payload) => this.send(type, flags, stream, payload),
      waitForRoom: (callback) => this.waitForRoom(callback),
    })
    this.connections.gateway = options.gateway ?? null
    channel.on('data', (chunk: Buffer) => this.receive(chunk))
    channel.on('drain', () => this.wakeWriters())
    channel.on('error', (error) => this.fail(createUnreachable(`the channel to the guest agent failed: ${error.message}`)))
    channel.once('close', () => this.fail(createUnreachable('the channel to the guest agent was closed')))
    if (rest.length > 0) this.receive(rest)
  }

  async exec(command: GuestCommand): Promise<GuestProcess> {
    const request = encodeExec(command, OUTPUT_WINDOW_BYTES)
    this.throwIfEnded()
    const stream = this.nextStream()
    const process = new AgentProcess(command, {
      stdinWindowBytes: this.facts.stdinWindowBytes,
      send: (type, flags, payload) => this.send(type, flags, stream, payload),
      waitForRoom: (callback) => this.waitForRoom(callback),
      withDeadline: (promise, what) => this.withDeadline(promise, what),
      forget: () => this.processes.delete(stream),
    })
    this.processes.set(stream, process)
    for (let at = 0; at < request.length; at += PAYLOAD_BYTES_MAX) {
      const isLast = at + PAYLOAD_BYTES_MAX >= request.length
      this.send(FRAME_TYPE.exec, isLast ? 0 : FLAG_MORE, stream, request.subarray(at, at + PAYLOAD_BYTES_MAX))
    }
    await this.withDeadline(process.started, 'the start of a command')
    return process
  }

  readFile(path: string, options: { bytesMax: number }): Promise<Readable> {
    return readGuestFile(this, path, options)
  }

  writeFile(path: string, content: Readable | Uint8Array | string, options?: { mode?: number; user?: string }): Promise<void> {
    return writeGuestFile(this, path, content, options)
  }

  listFiles(root: string, options: { entriesMax: number }): Promise<GuestFileEntry[]> {
    return listGuestFiles(this, root, options)
  }

  async quiesce(): Promise<void> {
    const errno = decodeU32(await this.request(FRAME_TYPE.quiesce, FRAME_TYPE.quiesced, 'a standstill', encodeTimeOfDay()))
    if (errno !== 0) {
      throw new Kosa8Error('CHECKPOINT_FAILED', `the guest's processes could not be frozen: ${describeErrno(errno)}`, {
        hint: 'a process may be stuck in the guest\'s kernel; try again', details: { errno },
      })
    }
  }

  async thaw(): Promise<void> {
    const errno = decodeU32(await this.request(FRAME_TYPE.thaw, FRAME_TYPE.thawed, 'a thaw', encodeTimeOfDay()))
    if (errno !== 0) {
      throw new Kosa8Error('GUEST_COMMAND_FAILED', `the guest's processes could not be thawed: ${describeErrno(errno)}`, { details: { errno } })
    }
  }

  async repairIdentity(identity: GuestIdentity): Promise<IdentityReport> {
    const payload = encodeIdentity(identity)
    const answer = await this.request(FRAME_TYPE.identity, FRAME_TYPE.identityDone, 'the repair of an identity', payload)
    const [clock, entropy, reseed, hostname, machineId, cloneId, hook, thaw] = decodeNumbers(answer, 8)
    const report: IdentityReport = {
      clockSet: clock === 0,
      entropyAdded: entropy === 0,
      reseeded: reseed === 0,
      hostnameSet: hostname === 0,
      machineIdSet: machineId === 0,
    }
    const isRepaired = Object.values(report).every((done) => done)
    if (isRepaired && (cloneId !== 0 || thaw !== 0)) {
      throw new Kosa8Error('IDENTITY_NOT_REPAIRED', 'the guest could not store its clone id or go on', { details: { cloneId, hook, thaw } })
    }
    return report
  }

  get hasGateway(): boolean {
    return this.isListening && this.connections.gateway !== null
  }

  async setGateway(gateway: GuestGateway | null): Promise<boolean> {
    this.connections.gateway = gateway
    if (this.isListening === (gateway !== null)) return false
    const answer = await this.request(FRAME_TYPE.listen, FRAME_TYPE.listening, 'an open port', encodeU16(gateway?.port ?? 0))
    const errno = decodeU32(answer)
    if (errno !== 0) {
      this.connections.gateway = null
      throw new Kosa8Error('GUEST_COMMAND_FAILED', `the guest cannot listen on port ${gateway?.port} of its loopback: ${describeErrno(errno)}`, {
        hint: 'does a program of the guest have that port?', details: { errno },
      })
    }
    this.isListening = gateway !== null
    return true
  }

  async ping(): Promise<void> {
    await this.request(FRAME_TYPE.ping, FRAME_TYPE.pong, 'a sign of life')
  }

  end(reason = 'the session was ended'): void {
    this.fail(createUnreachable(reason))
  }

  private nextStream(): number {
    this.lastStream += 1
    return this.lastStream
  }

  private async request(type: number, answerType: number, what: string, payload?: Uint8Array): Promise<Buffer> {
    this.throwIfEnded()
    const id = this.nextStream()
    const answer = createDeferred<Buffer>()
    this.requests.set(id, { type: answerType, answer })
    this.send(type, 0, id, payload)
    return this.withDeadline(answer.promise, what)
  }

  private async withDeadline<T>(promise: Promise<T>, what: string): Promise<T> {
    const timer = setTimeout(
      () => this.fail(createUnreachable(`the guest agent did not report ${what} within ${this.requestTimeoutMs} ms`)),
      this.requestTimeoutMs)
    try {
      return await promise
    } finally {
      clearTimeout(timer)
    }
  }

  private send(type: number, flags: number, stream: number, payload?: Uint8Array): void {
    if (this.failure !== null) return
    this.channel.write(encodeFrame(payload === undefined ? { type, flags, stream } : { type, flags, stream, payload }))
  }

  private waitForRoom(callback: () => void): boolean {
    if (!this.channel.writableNeedDrain || this.failure !== null) return false
    if (!this.roomWaiters.includes(callback)) this.roomWaiters.push(callback)
    return true
  }

  private wakeWriters(): void {
    const waiters = this.roomWaiters
    this.roomWaiters = []
    for (const wake of waiters) wake()
  }

  private receive(chunk: Buffer): void {
    if (this.failure !== null) return
    try {
      this.reader.push(chunk, (frame) => {
        if (this.failure === null) this.dispatch(frame)
      })
    } catch (error) {
      this.fail(toKosa8Error(error))
    }
  }

  private dispatch(frame: Frame): void {
    const request = this.requests.get(frame.stream)
    if (request !== undefined) {
      if (request.type !== frame.type) throw createProtocolError('an answer of the wrong kind')
      this.requests.delete(frame.stream)
      request.answer.resolve(Buffer.from(frame.payload))
      return
    }
    if (frame.stream >= GUEST_STREAMS) return this.connections.receive(frame)
    const process = this.processes.get(frame.stream)
    if (process === undefined) throw createProtocolError('a frame for a command that is not there')
    process.receive(frame)
  }

  private throwIfEnded(): void {
    if (this.failure !== null) throw createUnreachable(`the session with the guest agent has ended: ${this.failure.message}`)
  }

  /** Ends the session, once: everything that waits is rejected with this error. */
  private fail(error: Kosa8Error): void {
    if (this.failure !== null) return
    this.failure = error
    for (const { answer } of this.requests.values()) answer.reject(error)
    this.requests.clear()
    for (const process of this.processes.values()) process.abandon(error)
    this.processes.clear()
    this.connections.abandon(error)
    this.roomWaiters = []
    this.channel.destroy()
    this.end_.resolve(error.message)
  }
}
