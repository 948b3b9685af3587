/**
 * Both ends of an exec connection: a command's streams over one upgraded connection.
 *
 * Frame: type (1 byte), payload length (4 bytes, big-endian), payload. Each of stdin, stdout and stderr has
 * credit of its own: a sender may have CREDIT_BYTES on the way and waits for the reader to take them. So a
 * reader that leaves one stream alone holds up neither the other stream nor a signal nor the exit status.
 * Owns framing and credit; does not own what the frames do (`daemon/server/exec-route.ts`, `sdk/exec.ts`).
 */
import { Readable, Writable, type Duplex } from 'node:stream'
import { Kosa8Error } from '../errors/kosa8-error.js'

/** Frame types. Streams have a data and an end type each. */
export const FRAME = {
  start: 1, started: 2, stdin: 3, stdinEnd: 4, stdout: 5, stdoutEnd: 6, stderr: 7, stderrEnd: 8,
  credit: 9, resize: 10, signal: 11, exit: 12, error: 13,
} as const
export type FrameName = keyof typeof FRAME
export type ExecStreamName = 'stdin' | 'stdout' | 'stderr'
/** Frames that carry JSON. */
export type MessageName = 'start' | 'started' | 'credit' | 'resize' | 'signal' | 'exit' | 'error'

/** Bytes of one stream that may be on the way at once. */
export const CREDIT_BYTES = 256 * 1024
/** Largest payload of a data frame that we send. */
const DATA_BYTES = 32 * 1024
/** Largest payload accepted: a command with its arguments and environment. */
export const FRAME_BYTES_MAX = 4 * 1024 * 1024
const HEADER_BYTES = 5

const NAMES = new Map(Object.entries(FRAME).map(([name, type]) => [type as number, name as FrameName]))
const STREAMS: readonly ExecStreamName[] = ['stdin', 'stdout', 'stderr']

/** What the owner of one end does with frames that are not stream data. */
export interface ExecHandlers {
  onMessage(name: Exclude<MessageName, 'credit'>, body: unknown): void
  /** The connection has ended, with the reason when it broke; called once. */
  onClose(error: Kosa8Error | null): void
}

/** One end of an exec connection; owns its socket. */
export class ExecConnection {
  private buffered: Buffer[] = []
  private bufferedBytes = 0
  private readonly senders = new Map<ExecStreamName, CreditSender>()
  private readonly receivers = new Map<ExecStreamName, CreditReceiver>()
  private closed = false

  /** @param head bytes that arrived together with the upgrade */
  constructor(private readonly socket: Duplex, head: Buffer, private readonly handlers: ExecHandlers) {
    socket.on('data', (chunk: Buffer) => this.receive(chunk))
    socket.on('error', (error) => this.close(new Kosa8Error('DAEMON_UNREACHABLE', `the connection to the daemon broke: ${error.message}`)))
    socket.on('close', () => this.close(null))
    socket.on('end', () => this.end())
    // The owner may open its streams first: frames of the head are read after the caller's own code.
    if (head.length > 0) queueMicrotask(() => this.receive(head))
  }

  /** The sending side of a stream; ended by `end()`, held up while the reader does not read. */
  openWritable(stream: ExecStreamName): Writable {
    const sender = new CreditSender((chunk) => this.send(stream, chunk), () => this.send(`${stream}End`, EMPTY))
    this.senders.set(stream, sender)
    return sender
  }

  /** The receiving side of a stream. */
  openReadable(stream: ExecStreamName): Readable {
    const receiver = new CreditReceiver((bytes) => this.sendMessage('credit', { stream, bytes }))
    this.receivers.set(stream, receiver)
    return receiver
  }

  sendMessage(name: MessageName, body: unknown): void {
    this.send(name, Buffer.from(JSON.stringify(body)))
  }

  /** Nothing more will come for the streams still open here: their readers see a regular end. */
  finishReadables(): void {
    for (const receiver of this.receivers.values()) receiver.finish()
  }

  /** Sends what is written and ends the connection. */
  end(): void {
    this.socket.end()
    this.close(null)
  }

  /** Ends the connection at once. */
  destroy(): void {
    this.socket.destroy()
    this.close(null)
  }

  private send(name: FrameName, payload: Buffer): void {
    if (this.closed || !this.socket.writable) return
    const header = Buffer.allocUnsafe(HEADER_BYTES)
    header.writeUInt8(FRAME[name], 0)
    header.writeUInt32BE(payload.length, 1)
    this.socket.cork()
    this.socket.write(header)
    if (payload.length > 0) this.socket.write(payload)
    this.socket.uncork()
  }

  private receive(chunk: Buffer): void {
    this.buffered.push(chunk)
    this.bufferedBytes += chunk.length
    try {
      while (!this.closed && this.readFrame());
    } catch (error) {
      this.fail(error instanceof Error ? error.message : String(error))
    }
  }

  private readFrame(): boolean {
    if (this.bufferedBytes < HEADER_BYTES) return false
    const first = this.buffered[0] as Buffer
    const bytes = first.length >= HEADER_BYTES ? first : this.joinBuffered()
    const length = bytes.readUInt32BE(1)
    if (length > FRAME_BYTES_MAX) throw new Error(`a frame of ${length} bytes`)
    if (this.bufferedBytes < HEADER_BYTES + length) return false
    const all = this.joinBuffered()
    const rest = all.subarray(HEADER_BYTES + length)
    this.buffered = rest.length > 0 ? [rest] : []
    this.bufferedBytes = rest.length
    this.dispatch(all.readUInt8(0), all.subarray(HEADER_BYTES, HEADER_BYTES + length))
    return true
  }

  private joinBuffered(): Buffer {
    const all = this.buffered.length === 1 ? this.buffered[0] as Buffer : Buffer.concat(this.buffered)
    this.buffered = [all]
    return all
  }

  private dispatch(type: number, payload: Buffer): void {
    const name = NAMES.get(type)
    if (name === undefined) throw new Error(`a frame of unknown type ${type}`)
    for (const stream of STREAMS) {
      if (name === stream) return this.receiverOf(stream).accept(payload)
      if (name === `${stream}End`) return this.receiverOf(stream).finish()
    }
    const body: unknown = JSON.parse(payload.toString('utf8'))
    if (name === 'credit') return this.addCredit(body)
    this.handlers.onMessage(name as Exclude<MessageName, 'credit'>, body)
  }

  private receiverOf(stream: ExecStreamName): CreditReceiver {
    const receiver = this.receivers.get(stream)
    if (receiver === undefined) throw new Error(`data for ${stream}, which this end does not read`)
    return receiver
  }

  private addCredit(body: unknown): void {
    const { stream, bytes } = body as { stream: ExecStreamName; bytes: number }
    if (!Number.isInteger(bytes) || bytes < 1) throw new Error('credit that is not a positive number')
    this.senders.get(stream)?.addCredit(bytes)
  }

  private fail(message: string): void {
    this.socket.destroy()
    this.close(new Kosa8Error('INTERNAL', `the exec connection carried ${message}`))
  }

  private close(error: Kosa8Error | null): void {
    if (this.closed) return
    this.closed = true
    const reason = error ?? new Kosa8Error('DAEMON_UNREACHABLE', 'the connection ended before the stream did')
    for (const receiver of this.receivers.values()) receiver.breakOff(reason)
    for (const sender of this.senders.values()) sender.breakOff(reason)
    this.handlers.onClose(error)
  }
}

const EMPTY = Buffer.alloc(0)

/** Sends what it is given in pieces, as far as its credit reaches. */
class CreditSender extends Writable {
  private credit = CREDIT_BYTES
  private waiting: (() => void) | null = null

  constructor(private readonly sendData: (chunk: Buffer) => void, private readonly sendEnd: () => void) {
    super({ highWaterMark: DATA_BYTES })
    // A broken connection is told once, by onClose; an unread error here would end the process.
    this.on('error', () => undefined)
  }

  addCredit(bytes: number): void {
    this.credit += bytes
    const resume = this.waiting
    this.waiting = null
    resume?.()
  }

  breakOff(error: Error): void {
    if (!this.writableFinished) this.destroy(error)
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, callback: () => void): void {
    let rest = chunk
    const sendSome = (): void => {
      while (rest.length > 0 && this.credit > 0) {
        const piece = rest.subarray(0, Math.min(DATA_BYTES, this.credit))
        rest = rest.subarray(piece.length)
        this.credit -= piece.length
        this.sendData(piece)
      }
      if (rest.length === 0) callback()
      else this.waiting = sendSome
    }
    sendSome()
  }

  override _final(callback: () => void): void {
    this.sendEnd()
    callback()
  }
}

/** Hands on what arrives and gives credit back as it is read. */
class CreditReceiver extends Readable {
  private queue: Buffer[] = []
  private outstandingBytes = 0
  /** The other end has said that no more will come. */
  private isFinished = false
  /** The end has been handed on. */
  private hasEnded = false
  private isWanted = false

  constructor(private readonly giveCredit: (bytes: number) => void) {
    super({ highWaterMark: DATA_BYTES })
    this.on('error', () => undefined)
  }

  accept(chunk: Buffer): void {
    this.outstandingBytes += chunk.length
    if (this.outstandingBytes > CREDIT_BYTES) throw new Error('more data than was asked for')
    if (this.destroyed) return this.release(chunk.length)
    this.queue.push(chunk)
    this.pump()
  }

  finish(): void {
    this.isFinished = true
    this.pump()
  }

  breakOff(error: Error): void {
    if (!this.isFinished) this.destroy(error)
  }

  override _read(): void {
    this.isWanted = true
    this.pump()
  }

  /** Nobody reads any more: what comes is taken and dropped, so that the sender is not held up. */
  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    for (const chunk of this.queue) this.release(chunk.length)
    this.queue = []
    callback(error)
  }

  private pump(): void {
    while (this.isWanted && this.queue.length > 0) {
      const chunk = this.queue.shift() as Buffer
      this.isWanted = this.push(chunk)
      this.release(chunk.length)
    }
    if (this.isFinished && this.queue.length === 0 && !this.destroyed && !this.hasEnded) {
      this.hasEnded = true
      this.push(null)
    }
  }

  private release(bytes: number): void {
    this.outstandingBytes -= bytes
    this.giveCredit(bytes)
  }
}
