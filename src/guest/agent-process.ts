/**
 * One command in the guest, as the host sees it.
 *
 * Owns: its start, streams, signals, end and closing. Does not own: the channel. Made by
 * `agent-session.ts`, which hands it the frames of its stream number.
 */
import type { Readable, Writable } from 'node:stream'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { createDeferred, type Deferred } from '../util/deferred.js'
import { createProtocolError, FRAME_TYPE, type Frame } from './frames.js'
import { decodeClosed, decodeExit, decodeStartFailure, decodeU32, encodeSize, encodeU32 } from './messages.js'
import type { GuestCommand, GuestExit, GuestProcess, LeftoverProcess } from './session.js'
import { GuestInput, GuestOutput } from './streams.js'

/** What the pipes of an ended command may still hold and is sent without anybody reading, per stream. */
const CLOSING_CREDIT_BYTES = 1024 * 1024
const CHANNEL_STDOUT = 1
const CHANNEL_STDERR = 2
/** errno of Linux: no such file; file too large. */
const ENOENT = 2
const EFBIG = 27

/** What a process needs of its session. */
export interface ProcessLink {
  readonly stdinWindowBytes: number
  send(type: number, flags: number, payload?: Uint8Array): void
  waitForRoom(callback: () => void): boolean
  /** Ends the session when the promise does not settle in time. */
  withDeadline<T>(promise: Promise<T>, what: string): Promise<T>
  /** The stream number is not in use any more. */
  forget(): void
}

/** The session's side of a {@link GuestProcess}. */
export class AgentProcess implements GuestProcess {
  readonly stdin: Writable | null
  readonly stdout: Readable
  readonly stderr: Readable
  readonly exited: Promise<GuestExit>
  /** Settles when the program runs, or could not be started. */
  readonly started: Promise<void>
  private readonly input: GuestInput | null
  private readonly outputs: readonly [GuestOutput, GuestOutput]
  private readonly start = createDeferred<void>()
  private readonly exit = createDeferred<GuestExit>()
  private readonly closing = createDeferred<LeftoverProcess[]>()
  private acknowledgements: Deferred<number>[] = []
  private hasStarted = false
  private hasExited = false
  private isReleased = false
  private closeCall: Promise<LeftoverProcess[]> | null = null
  private failure: Kosa8Error | null = null

  constructor(private readonly command: GuestCommand, private readonly link: ProcessLink) {
    const openOutput = (channel: number): GuestOutput =>
      new GuestOutput((bytes) => this.sendWhileOpen(FRAME_TYPE.credit, channel, encodeU32(bytes)))
    this.outputs = [openOutput(CHANNEL_STDOUT), openOutput(CHANNEL_STDERR)]
    this.input = command.stdin !== true ? null : new GuestInput(link.stdinWindowBytes, {
      send: (bytes) => this.sendWhileOpen(FRAME_TYPE.data, 0, bytes),
      sendEnd: () => this.sendWhileOpen(FRAME_TYPE.eof, 0),
      waitForRoom: (callback) => link.waitForRoom(callback),
    })
    this.stdin = this.input
    ;[this.stdout, this.stderr] = this.outputs
    this.exited = this.exit.promise
    this.started = this.start.promise
  }

  async signal(signal: number): Promise<void> {
    const errno = await this.request(FRAME_TYPE.signal, encodeU32(signal), 'a signal')
    if (errno !== 0) throw new Kosa8Error('GUEST_COMMAND_FAILED', `signal ${signal} could not be sent`, { details: { errno } })
  }

  async resize(size: { rows: number; columns: number }): Promise<void> {
    const errno = await this.request(FRAME_TYPE.resize, encodeSize(size), 'a change of size')
    if (errno !== 0) throw new Kosa8Error('GUEST_COMMAND_FAILED', 'the command has no terminal', { details: { errno } })
  }

  close(): Promise<LeftoverProcess[]> {
    this.closeCall ??= this.closeOnce()
    return this.closeCall
  }

  release(): void {
    if (this.failure !== null || this.closeCall !== null || this.isReleased) return
    this.isReleased = true
    this.link.send(FRAME_TYPE.release, 0)
  }

  /** A frame of this process. @throws Kosa8Error GUEST_PROTOCOL. */
  receive(frame: Frame): void {
    switch (frame.type) {
      case FRAME_TYPE.started: return this.receiveStarted()
      case FRAME_TYPE.startFailed: return this.receiveStartFailed(frame.payload)
      case FRAME_TYPE.data: return this.outputOf(frame).receive(frame.payload)
      case FRAME_TYPE.eof: return this.outputOf(frame).receiveEnd()
      case FRAME_TYPE.credit: return this.receiveCredit(frame.payload)
      case FRAME_TYPE.exit: return this.receiveExit(frame.payload)
      case FRAME_TYPE.closed: return this.receiveClosed(frame.payload)
      case FRAME_TYPE.done: return this.receiveDone(frame.payload)
      default: throw createProtocolError(`a frame of unknown type ${frame.type}`)
    }
  }

  /** The session has ended: everything that waits fails with this. */
  abandon(error: Kosa8Error): void {
    this.failure = error
    this.start.reject(error)
    this.exit.reject(error)
    this.closing.reject(error)
    for (const acknowledgement of this.acknowledgements) acknowledgement.reject(error)
    this.acknowledgements = []
    for (const output of this.outputs) output.destroy(error)
    this.input?.destroy(error)
  }

  private async closeOnce(): Promise<LeftoverProcess[]> {
    if (this.failure !== null) throw this.failure
    for (const output of this.outputs) output.allowMore(CLOSING_CREDIT_BYTES)
    this.link.send(FRAME_TYPE.close, 0)
    return this.link.withDeadline(this.closing.promise, 'the end of a command')
  }

  private async request(type: number, payload: Uint8Array, what: string): Promise<number> {
    if (this.failure !== null) throw this.failure
    if (this.closeCall !== null) throw new Kosa8Error('GUEST_COMMAND_FAILED', 'the command has been closed')
    const acknowledgement = createDeferred<number>()
    this.acknowledgements.push(acknowledgement)
    this.link.send(type, 0, payload)
    return this.link.withDeadline(acknowledgement.promise, what)
  }

  private sendWhileOpen(type: number, flags: number, payload?: Uint8Array): void {
    if (this.failure === null) this.link.send(type, flags, payload)
  }

  private outputOf(frame: Frame): GuestOutput {
    const output = this.hasStarted ? this.outputs[frame.flags - 1] : undefined
    if (output === undefined) throw createProtocolError('output of an unknown stream')
    return output
  }

  private receiveStarted(): void {
    if (this.hasStarted) throw createProtocolError('a start twice')
    this.hasStarted = true
    this.start.resolve()
  }

  private receiveStartFailed(payload: Buffer): void {
    if (this.hasStarted) throw createProtocolError('a failed start after a start')
    const { errno, step } = decodeStartFailure(payload)
    const code = errno === EFBIG ? 'LIMIT_EXCEEDED' : 'GUEST_COMMAND_FAILED'
    this.abandon(new Kosa8Error(code, `${this.command.argv.slice(0, 2).join(' ')} could not be started: ${this.describeStartFailure(errno, step)}`, {
      details: { errno, step },
    }))
    this.link.forget()
  }

  /** The agent's word for what it was doing, in the caller's terms. */
  private describeStartFailure(errno: number, step: string): string {
    const { user, cwd } = this.command
    if (step === 'user' && user !== undefined) return `there is no user ${user} in the sandbox`
    if (step === 'working directory') return `folder ${cwd}: ${describeErrno(errno)}`
    if (step === 'exec' && errno === ENOENT) return 'there is no such program in the sandbox'
    return `${describeErrno(errno)} (${step})`
  }

  private receiveCredit(payload: Buffer): void {
    if (this.input === null) throw createProtocolError('credit for input nobody sends')
    this.input.receiveCredit(decodeU32(payload))
  }

  private receiveExit(payload: Buffer): void {
    if (!this.hasStarted || this.hasExited) throw createProtocolError('an exit out of order')
    this.hasExited = true
    this.exit.resolve(decodeExit(payload))
  }

  private receiveDone(payload: Buffer): void {
    const acknowledgement = this.acknowledgements.shift()
    if (acknowledgement === undefined) throw createProtocolError('an answer to nothing')
    acknowledgement.resolve(decodeU32(payload))
  }

  private receiveClosed(payload: Buffer): void {
    const { allGone, leftovers } = decodeClosed(payload)
    if (this.closeCall === null && !this.isReleased) throw createProtocolError('the end of a command that was not closed')
    const error = new Kosa8Error('GUEST_COMMAND_FAILED', 'processes of the command could not be ended', { details: { leftovers } })
    this.failure = new Kosa8Error('GUEST_COMMAND_FAILED', 'the command has been closed')
    if (allGone) this.closing.resolve(leftovers)
    else this.closing.reject(error)
    this.exit.reject(error)
    this.input?.destroy()
    this.link.forget()
  }
}

const ERRNO_TEXT: Record<number, string> = {
  98: 'the address is in use',
  1: 'not permitted', 2: 'no such file or directory', 7: 'argument list too long', 8: 'not an executable format',
  11: 'too many at the same time', 12: 'out of memory', 13: 'permission denied', 17: 'already there', 20: 'not a directory',
  21: 'is a directory', 22: 'not valid', 26: 'text file busy', 27: 'file too large', 28: 'no space left', 30: 'read-only file system',
  36: 'name too long', 40: 'a symbolic link in the path',
}

/** A Linux error number in words. */
export function describeErrno(errno: number): string {
  return ERRNO_TEXT[errno] ?? `error ${errno}`
}
