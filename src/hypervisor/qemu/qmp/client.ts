/**
 * A QMP conversation over a connected socket.
 *
 *   greeting ──> negotiating ──> ready ──> closed
 *       └──────────────┴───────────┴─────────^   (socket closed, nonsense received, or close())
 *
 * Owns: greeting and negotiation, matching replies to commands by id, events. When the conversation
 * ends, every pending call is settled with the one error that ended it. Does not own the process.
 */
import type { Duplex } from 'node:stream'
import { Kosa8Error, toKosa8Error } from '../../../errors/kosa8-error.js'
import { createDeferred, type Deferred } from '../../../util/deferred.js'
import { LineFramer } from './framing.js'
import { parseMessage, type QmpEvent, type QmpMessage } from './messages.js'

/** Milliseconds a command may take; the slowest one here (saving device state) takes a few. */
const CALL_TIMEOUT_MS = 60_000

type State = 'greeting' | 'negotiating' | 'ready' | 'closed'

interface PendingCall {
  command: string
  reply: Deferred<unknown>
  timer: NodeJS.Timeout
}

/** A conversation with one QEMU. Commands may overlap; each is answered by its own reply. */
export class QmpClient {
  private state: State = 'greeting'
  private readonly framer = new LineFramer()
  private readonly pending = new Map<number, PendingCall>()
  private readonly listeners = new Set<(event: QmpEvent) => void>()
  private readonly greeted = createDeferred<void>()
  private readonly losing = createDeferred<Kosa8Error>()
  private reason: Kosa8Error | undefined
  private nextId = 1

  constructor(private readonly socket: Duplex) {
    socket.on('data', (chunk: Buffer) => this.onBytes(chunk))
    socket.on('error', (cause) => this.end(new Kosa8Error('MACHINE_GONE', `lost QEMU: ${cause.message}`, { cause })))
    for (const event of ['end', 'close']) {
      socket.on(event, () => this.end(new Kosa8Error('MACHINE_GONE', 'QEMU closed the connection')))
    }
  }

  /** Settles with the reason when the conversation ended other than by {@link close}; never rejects. */
  get lost(): Promise<Kosa8Error> {
    return this.losing.promise
  }

  /**
   * Waits for the greeting and negotiates; afterwards commands can be called.
   * @throws Kosa8Error MACHINE_GONE, MACHINE_PROTOCOL, or TIMED_OUT after `timeoutMs`.
   */
  async negotiate(timeoutMs: number): Promise<void> {
    const timer = setTimeout(() => {
      this.end(new Kosa8Error('TIMED_OUT', `QEMU did not answer within ${timeoutMs} ms`))
    }, timeoutMs)
    try {
      await this.greeted.promise
      await this.send('qmp_capabilities')
      this.state = 'ready'
    } finally {
      clearTimeout(timer)
    }
  }

  /**
   * Runs a command.
   * @throws Kosa8Error MACHINE_PROTOCOL when QEMU refuses it, MACHINE_GONE when the conversation ends.
   */
  async call(command: string, parameters?: Record<string, unknown>): Promise<unknown> {
    if (this.reason !== undefined) throw this.reason
    if (this.state !== 'ready') throw new Kosa8Error('INTERNAL', `QMP command ${command} before negotiation`)
    return this.send(command, parameters)
  }

  /** Calls `listener` for every event from now on; returns how to stop that. */
  onEvent(listener: (event: QmpEvent) => void): () => void {
    this.listeners.add(listener)
    return () => this.listeners.delete(listener)
  }

  /** Ends the conversation from our side; the machine is not touched. */
  close(): void {
    this.end(new Kosa8Error('MACHINE_GONE', 'the connection to QEMU was closed'), false)
  }

  private send(command: string, parameters?: Record<string, unknown>): Promise<unknown> {
    const id = this.nextId++
    const reply = createDeferred<unknown>()
    const timer = setTimeout(() => {
      this.end(new Kosa8Error('MACHINE_PROTOCOL', `QEMU did not answer ${command} within ${CALL_TIMEOUT_MS} ms`))
    }, CALL_TIMEOUT_MS)
    this.pending.set(id, { command, reply, timer })
    this.socket.write(`${JSON.stringify({ execute: command, arguments: parameters, id })}\n`)
    return reply.promise
  }

  private onBytes(chunk: Buffer): void {
    try {
      for (const line of this.framer.push(chunk)) if (line !== '') this.dispatch(parseMessage(line))
    } catch (error) {
      this.end(toKosa8Error(error))
    }
  }

  private dispatch(message: QmpMessage): void {
    if (message.kind === 'event') {
      for (const listener of [...this.listeners]) listener(message.event)
    } else if (message.kind === 'greeting') {
      if (this.state !== 'greeting') throw new Kosa8Error('MACHINE_PROTOCOL', 'QEMU greeted twice')
      this.state = 'negotiating'
      this.greeted.resolve()
    } else {
      this.settle(message)
    }
  }

  private settle({ id, value, error }: Extract<QmpMessage, { kind: 'reply' }>): void {
    const call = id === undefined ? undefined : this.pending.get(id)
    if (id === undefined || call === undefined) {
      throw new Kosa8Error('MACHINE_PROTOCOL', `QEMU answered a command nobody sent: ${error ?? 'no error'}`)
    }
    this.pending.delete(id)
    clearTimeout(call.timer)
    if (error === undefined) call.reply.resolve(value)
    else call.reply.reject(new Kosa8Error('MACHINE_PROTOCOL', `QEMU refused ${call.command}: ${error}`))
  }

  private end(reason: Kosa8Error, isLost = true): void {
    if (this.state === 'closed') return
    this.state = 'closed'
    this.reason = reason
    this.socket.destroy()
    for (const call of this.pending.values()) {
      clearTimeout(call.timer)
      call.reply.reject(reason)
    }
    this.pending.clear()
    this.listeners.clear()
    this.greeted.reject(reason)
    if (isLost) this.losing.resolve(reason)
  }
}
