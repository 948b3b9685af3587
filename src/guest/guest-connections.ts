/**
 * Connections that programs of the guest make to the agent's port, as the host sees them.
 *
 * Owns: their table, credit, half-closed ends, and that the guest can do no more with them than break its own session.
 * Does not own: what travels in them (whoever gets the connection). Part of a session (`agent-session.ts`).
 */
import { Duplex } from 'node:stream'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { createProtocolError, FRAME_TYPE, type Frame } from './frames.js'
import { decodeU32, encodeU32 } from './messages.js'
import type { GuestGateway } from './session.js'
import { GuestInput, GuestOutput } from './streams.js'

/** Stream numbers from here on are chosen by the guest; those below by the host. */
export const GUEST_STREAMS = 0x80000000
/** The agent carries no more at a time. */
const CONNECTIONS_MAX = 256
/** Bytes the guest may send ahead of whoever reads, per connection. */
const WINDOW_BYTES = 64 * 1024
/** Bounds of what the guest may offer as the other direction's window. */
const OFFERED_WINDOW_MIN = 4 * 1024
const OFFERED_WINDOW_MAX = 1024 * 1024

/** What the connections need of their session. */
export interface ConnectionsLink {
  send(type: number, flags: number, stream: number, payload?: Uint8Array): void
  waitForRoom(callback: () => void): boolean
}

interface Connection {
  input: GuestInput
  output: GuestOutput
  /** Both directions as one; null when nobody was there to take it. */
  duplex: Duplex | null
}

/** The connections of one session. */
export class GuestConnections {
  /** Gets each new connection; null: they are refused. */
  gateway: GuestGateway | null = null
  private readonly all = new Map<number, Connection>()

  constructor(private readonly link: ConnectionsLink) {}

  /** A frame of a stream of the guest's. @throws Kosa8Error GUEST_PROTOCOL. */
  receive(frame: Frame): void {
    if (frame.type === FRAME_TYPE.connected) return this.open(frame)
    const connection = this.all.get(frame.stream)
    if (connection === undefined) throw createProtocolError('a frame for a connection that is not there')
    switch (frame.type) {
      case FRAME_TYPE.data: return connection.output.receive(frame.payload)
      case FRAME_TYPE.eof: return connection.output.receiveEnd()
      case FRAME_TYPE.credit: return connection.input.receiveCredit(decodeU32(frame.payload))
      case FRAME_TYPE.closed: return this.forget(frame.stream, connection, decodeU32(frame.payload) !== 0)
      default: throw createProtocolError(`a frame of unknown type ${frame.type}`)
    }
  }

  /** The session has ended, and every connection with it. */
  abandon(error: Kosa8Error): void {
    for (const { input, output, duplex } of this.all.values()) for (const stream of [duplex, input, output]) stream?.destroy(error)
    this.all.clear()
  }

  private open({ stream, payload }: Frame): void {
    if (this.all.has(stream)) throw createProtocolError('a connection twice')
    if (this.all.size >= CONNECTIONS_MAX) throw createProtocolError('more connections than it may have')
    const windowBytes = decodeU32(payload)
    if (windowBytes < OFFERED_WINDOW_MIN || windowBytes > OFFERED_WINDOW_MAX) throw createProtocolError('an impossible window')
    const send = (type: number, bytes?: Uint8Array): void => this.link.send(type, 0, stream, bytes)
    const input = new GuestInput(windowBytes, {
      send: (bytes) => send(FRAME_TYPE.data, bytes),
      sendEnd: () => send(FRAME_TYPE.eof),
      waitForRoom: (callback) => this.link.waitForRoom(callback),
    })
    const output = new GuestOutput((bytes) => send(FRAME_TYPE.credit, encodeU32(bytes)), WINDOW_BYTES)
    if (this.gateway === null) {
      this.all.set(stream, { input, output, duplex: null })
      send(FRAME_TYPE.close)
      return
    }
    const duplex = Duplex.from({ readable: output, writable: input })
    this.all.set(stream, { input, output, duplex })
    duplex.on('error', () => undefined) // a connection that breaks must not end the host
    duplex.once('close', () => {
      const isComplete = output.readableEnded && input.writableFinished
      if (this.all.has(stream) && !isComplete) send(FRAME_TYPE.close)
    })
    send(FRAME_TYPE.credit, encodeU32(WINDOW_BYTES))
    this.gateway.onConnection(duplex)
  }

  private forget(stream: number, { input, output, duplex }: Connection, isBroken: boolean): void {
    this.all.delete(stream)
    if (!isBroken && output.hasEnded) return
    const error = new Kosa8Error('GUEST_COMMAND_FAILED', 'the connection was broken off in the guest')
    for (const side of [duplex, input, output]) side?.destroy(error)
  }
}
