/**
 * Frames: what travels over the channel to the guest agent. The layout is in guest/PROTOCOL.md.
 *
 * Owns: building frames, finding the acknowledgement that begins a session, taking frames out of the
 * bytes that follow. Pure. Does not own: what payloads mean (`messages.ts`). Called by `agent-session.ts`.
 */
import { crc32 } from 'node:zlib'
import { Kosa8Error } from '../errors/kosa8-error.js'

/** The largest payload of one frame, bytes. */
export const PAYLOAD_BYTES_MAX = 32 * 1024
/** Bytes of a frame before its payload, and after it. */
export const HEADER_BYTES = 20
export const TRAILER_BYTES = 4
/** Bytes of the random number that ties an acknowledgement to its HELLO. */
export const NONCE_BYTES = 16

const MAGIC = 0xa1384bc5
/** An acknowledgement is small; a larger one is none. */
const ACK_BYTES_MAX = 1024

/** What a frame is about; numbers below 0x80 go to the guest, but DATA, EOF and CREDIT go both ways. */
export const FRAME_TYPE = {
  hello: 0x01, exec: 0x02, data: 0x03, eof: 0x04, credit: 0x05, signal: 0x06, resize: 0x07, close: 0x08,
  ping: 0x09, identity: 0x0a, quiesce: 0x0b, thaw: 0x0c, release: 0x0d, listen: 0x0e,
  helloAck: 0x81, started: 0x82, startFailed: 0x83, exit: 0x84, closed: 0x85, pong: 0x86,
  identityDone: 0x87, quiesced: 0x88, thawed: 0x89, done: 0x8a, listening: 0x8b, connected: 0x8c,
} as const

/** Flag of an EXEC frame: the request goes on in the next frame. */
export const FLAG_MORE = 0x01

/** One frame; `payload` is a view into the bytes that were received. */
export interface Frame {
  type: number
  flags: number
  stream: number
  payload: Buffer
}

/** A failure of the guest to keep to the protocol; it ends the session. */
export function createProtocolError(message: string): Kosa8Error {
  return new Kosa8Error('GUEST_PROTOCOL', `the guest agent broke the protocol: ${message}`)
}

/** The bytes of one frame. */
export function encodeFrame(frame: Omit<Frame, 'payload'> & { payload?: Uint8Array }): Buffer {
  const payload = frame.payload ?? new Uint8Array(0)
  const bytes = Buffer.allocUnsafe(HEADER_BYTES + payload.length + TRAILER_BYTES)
  bytes.writeUInt32LE(MAGIC, 0)
  bytes[4] = frame.type
  bytes[5] = frame.flags
  bytes.writeUInt16LE(0, 6)
  bytes.writeUInt32LE(frame.stream, 8)
  bytes.writeUInt32LE(payload.length, 12)
  const crc = crc32(bytes.subarray(0, 16))
  bytes.writeUInt32LE(crc, 16)
  bytes.set(payload, HEADER_BYTES)
  bytes.writeUInt32LE(crc, HEADER_BYTES + payload.length)
  return bytes
}

/** What begins a session: zeros that complete whatever frame was cut off, then HELLO. */
export function encodeHello(nonce: Uint8Array): Buffer {
  const filler = Buffer.alloc(HEADER_BYTES + PAYLOAD_BYTES_MAX + TRAILER_BYTES)
  return Buffer.concat([filler, encodeFrame({ type: FRAME_TYPE.hello, flags: 0, stream: 0, payload: nonce })])
}

/**
 * Takes one frame from the start of `bytes`.
 * @returns null when it is not there in full yet.
 * @throws Kosa8Error GUEST_PROTOCOL when there can be no frame.
 */
export function decodeFrame(bytes: Buffer): { frame: Frame; sizeBytes: number } | null {
  if (bytes.length < HEADER_BYTES) return null
  const length = bytes.readUInt32LE(12)
  const crc = bytes.readUInt32LE(16)
  if (bytes.readUInt32LE(0) !== MAGIC || length > PAYLOAD_BYTES_MAX || crc32(bytes.subarray(0, 16)) !== crc) {
    throw createProtocolError('bytes that are no frame')
  }
  const sizeBytes = HEADER_BYTES + length + TRAILER_BYTES
  if (bytes.length < sizeBytes) return null
  if (bytes.readUInt32LE(HEADER_BYTES + length) !== crc) throw createProtocolError('a frame that was cut off')
  const payload = bytes.subarray(HEADER_BYTES, HEADER_BYTES + length)
  return { frame: { type: bytes.readUInt8(4), flags: bytes.readUInt8(5), stream: bytes.readUInt32LE(8), payload }, sizeBytes }
}

/** Looks for the acknowledgement of one HELLO among whatever an earlier session left in the channel. */
export class AckScanner {
  private bytes: Buffer = Buffer.alloc(0)

  constructor(private readonly nonce: Buffer) {}

  /** @returns the acknowledgement and the bytes after it, or null when it has not come yet. */
  push(chunk: Buffer): { frame: Frame; rest: Buffer } | null {
    this.bytes = this.bytes.length === 0 ? chunk : Buffer.concat([this.bytes, chunk])
    for (let from = 0; ;) {
      const at = this.bytes.indexOf(this.nonce, from)
      if (at < 0) break
      if (at >= HEADER_BYTES) {
        const start = this.bytes.subarray(at - HEADER_BYTES)
        const found = decodeAck(start)
        if (found === 'incomplete') {
          this.bytes = Buffer.from(start)
          return null
        }
        if (found !== null) return { frame: found.frame, rest: start.subarray(found.sizeBytes) }
      }
      from = at + 1
    }
    this.bytes = Buffer.from(this.bytes.subarray(Math.max(0, this.bytes.length - HEADER_BYTES - NONCE_BYTES)))
    return null
  }
}

function decodeAck(bytes: Buffer): { frame: Frame; sizeBytes: number } | 'incomplete' | null {
  if (bytes.readUInt8(4) !== FRAME_TYPE.helloAck || bytes.readUInt32LE(12) > ACK_BYTES_MAX) return null
  try {
    return decodeFrame(bytes) ?? 'incomplete'
  } catch {
    return null
  }
}

/** Cuts a session's bytes into frames; holds at most one incomplete frame. */
export class FrameReader {
  private pending: Buffer[] = []
  private pendingBytes = 0
  private neededBytes = HEADER_BYTES

  /**
   * Hands each whole frame to `onFrame`, in order.
   * @throws Kosa8Error GUEST_PROTOCOL, and whatever `onFrame` throws.
   */
  push(chunk: Buffer, onFrame: (frame: Frame) => void): void {
    this.pending.push(chunk)
    this.pendingBytes += chunk.length
    if (this.pendingBytes < this.neededBytes) return
    let bytes = this.pending.length === 1 ? chunk : Buffer.concat(this.pending)
    for (let next = decodeFrame(bytes); next !== null; next = decodeFrame(bytes)) {
      bytes = bytes.subarray(next.sizeBytes)
      onFrame(next.frame)
    }
    this.pending = [bytes]
    this.pendingBytes = bytes.length
    this.neededBytes = bytes.length < HEADER_BYTES ? HEADER_BYTES : HEADER_BYTES + bytes.readUInt32LE(12) + TRAILER_BYTES
  }
}
