/**
 * The two ends of the byte streams of a command or connection, with credit: neither side ever holds more than a window.
 *
 * Owns: translating between Node's backpressure and the protocol's credit. Does not own: frames.
 * Used by `agent-process.ts` and `guest-connections.ts`.
 */
import { Readable, Writable } from 'node:stream'
import { createProtocolError, PAYLOAD_BYTES_MAX } from './frames.js'

/** Bytes a command may send ahead of the reader, per stream. */
export const OUTPUT_WINDOW_BYTES = 256 * 1024
/** Chunks below this are copied, so that a few bytes do not keep a whole read of the channel alive. */
const COPIED_BYTES_MAX = 4 * 1024

const ignoreError = (): void => undefined

/** What comes from the guest: output of a command, say. What the reader does not take is not asked for; what it gave up is dropped. */
export class GuestOutput extends Readable {
  private queue: Buffer[] = []
  private head = 0
  private isWanted = false
  /** The guest has said that nothing follows. */
  hasEnded = false
  private outstanding: number
  private owed = 0

  constructor(private readonly sendCredit: (bytes: number) => void, private readonly windowBytes = OUTPUT_WINDOW_BYTES) {
    super({ highWaterMark: 64 * 1024 })
    this.outstanding = windowBytes
    this.on('error', ignoreError) // an unread stream of a lost session must not end the host
  }

  /** Bytes from the guest. @throws Kosa8Error GUEST_PROTOCOL when it had no credit for them. */
  receive(payload: Buffer): void {
    if (payload.length === 0 || payload.length > this.outstanding || this.hasEnded) {
      throw createProtocolError('output it had no credit for')
    }
    this.outstanding -= payload.length
    const chunk = payload.length < COPIED_BYTES_MAX ? Buffer.from(payload) : payload
    if (this.destroyed) this.owe(chunk.length)
    else if (this.isWanted) this.handOver(chunk)
    else this.queue.push(chunk)
  }

  receiveEnd(): void {
    if (this.hasEnded) throw createProtocolError('the end of an output twice')
    this.hasEnded = true
    if (this.isDrained()) this.push(null)
  }

  /** Lets the guest send this much more although nobody reads. */
  allowMore(bytes: number): void {
    if (this.hasEnded) return
    this.outstanding += bytes
    this.sendCredit(bytes)
  }

  override _read(): void {
    this.isWanted = true
    while (this.isWanted && !this.isDrained()) {
      const chunk = this.queue[this.head++]
      if (this.isDrained()) {
        this.queue = []
        this.head = 0
      }
      if (chunk !== undefined) this.handOver(chunk)
    }
    if (this.hasEnded && this.isDrained()) this.push(null)
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    const dropped = this.queue.slice(this.head).reduce((sum, chunk) => sum + chunk.length, 0)
    this.queue = []
    this.head = 0
    this.owe(dropped)
    callback(error)
  }

  private isDrained(): boolean {
    return this.head >= this.queue.length
  }

  private handOver(chunk: Buffer): void {
    this.isWanted = this.push(chunk)
    this.owe(chunk.length)
  }

  private owe(bytes: number): void {
    this.owed += bytes
    if (this.hasEnded || this.owed < this.windowBytes / 4) return
    this.outstanding += this.owed
    this.sendCredit(this.owed)
    this.owed = 0
  }
}

/** What a {@link GuestInput} sends through. */
export interface InputLink {
  send(bytes: Uint8Array): void
  sendEnd(): void
  /** Calls back when the channel can take more; false when it can right now. */
  waitForRoom(callback: () => void): boolean
}

/** What goes to the guest, such as the standard input of a command: a write completes when the channel has taken it within the window. */
export class GuestInput extends Writable {
  private pending: { chunk: Buffer; callback: () => void } | null = null
  private credit: number

  constructor(private readonly windowBytes: number, private readonly link: InputLink) {
    super({ highWaterMark: 64 * 1024, decodeStrings: true })
    this.credit = windowBytes
    this.on('error', ignoreError)
  }

  /** @throws Kosa8Error GUEST_PROTOCOL when the guest gives back more than it was sent. */
  receiveCredit(bytes: number): void {
    this.credit += bytes
    if (this.credit > this.windowBytes) throw createProtocolError('credit for input that was not sent')
    this.pump()
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, callback: () => void): void {
    this.pending = { chunk, callback }
    this.pump()
  }

  override _final(callback: () => void): void {
    this.link.sendEnd()
    callback()
  }

  private readonly pump = (): void => {
    while (this.pending !== null && this.credit > 0 && !this.destroyed) {
      if (this.link.waitForRoom(this.pump)) return
      const { chunk, callback } = this.pending
      const part = chunk.subarray(0, Math.min(this.credit, PAYLOAD_BYTES_MAX))
      this.credit -= part.length
      const rest = chunk.subarray(part.length)
      this.pending = rest.length > 0 ? { chunk: rest, callback } : null
      if (part.length > 0) this.link.send(part)
      if (rest.length === 0) callback()
    }
  }
}
