/**
 * An exec connection: the upgrade, the command of its first frame, and the command's streams after it.
 *
 * Owns: what happens to the command when one side ends. A caller that goes before the command has ended
 * takes it along; a command that has ended leaves its background processes running in the sandbox.
 */
import type { IncomingMessage } from 'node:http'
import type { Duplex, Readable, Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { GuestProcess } from '../../guest/session.js'
import { Kosa8Error, serialiseError } from '../../errors/kosa8-error.js'
import { sandboxNameSchema } from '../../model/ids.js'
import { ExecConnection } from '../../protocol/exec-frames.js'
import { execRequestSchema } from '../../protocol/sandboxes.js'
import { EXEC_UPGRADE } from '../../protocol/streams.js'
import type { SandboxService } from '../services.js'
import { validate } from './validation.js'

/** After the command's end, how long output of processes it left may still come, milliseconds. */
const LATE_OUTPUT_MS = 250
/** The same where something goes on printing, milliseconds. */
const LATE_OUTPUT_MS_MAX = 2_000

/** Answers an upgrade request; anything that is not an exec connection is refused. */
export function handleExecUpgrade(
  sandboxes: SandboxService, request: IncomingMessage, socket: Duplex, head: Buffer,
): void {
  const match = /^\/v1\/sandboxes\/([^/?]+)\/exec$/.exec(request.url ?? '')
  const name = sandboxNameSchema.safeParse(match?.[1])
  if (!name.success || request.headers.upgrade !== EXEC_UPGRADE) {
    socket.end('HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n')
    return
  }
  socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: ${EXEC_UPGRADE}\r\nConnection: Upgrade\r\n\r\n`)
  new ExecSession(sandboxes, name.data, socket, head)
}

/** The life of one command on one connection. */
class ExecSession {
  private readonly connection: ExecConnection
  private readonly stdin: Readable
  private process: GuestProcess | null = null
  private hasStarted = false
  private hasExited = false
  private callerIsGone = false

  constructor(private readonly sandboxes: SandboxService, private readonly name: string, socket: Duplex, head: Buffer) {
    this.connection = new ExecConnection(socket, head, {
      onMessage: (message, body) => { this.onMessage(message, body).catch((error: unknown) => this.fail(error)) },
      onClose: () => { void this.onCallerGone() },
    })
    this.stdin = this.connection.openReadable('stdin')
  }

  private async onMessage(message: string, body: unknown): Promise<void> {
    if (message === 'start' && !this.hasStarted) {
      this.hasStarted = true
      return this.run(body)
    }
    if (message === 'signal' && this.process !== null) return this.process.signal(numberIn(body, 'signal', 1, 64))
    if (message === 'resize' && this.process !== null) {
      return this.process.resize({ rows: numberIn(body, 'rows', 1, 65535), columns: numberIn(body, 'columns', 1, 65535) })
    }
    throw new Kosa8Error('USAGE', `a frame ${message} was not expected here`)
  }

  private async run(body: unknown): Promise<void> {
    const command = validate(execRequestSchema, body, 'command')
    const process = await this.sandboxes.exec(this.name, command)
    this.process = process
    if (this.callerIsGone) {
      await process.close()
      return
    }
    this.connection.sendMessage('started', {})
    if (process.stdin !== null) pipeline(this.stdin, process.stdin).catch(() => undefined)
    const outputs = [this.forward(process.stdout, 'stdout'), this.forward(process.stderr, 'stderr')]
    const exit = await process.exited
    this.hasExited = true
    await waitForLateOutput(outputs)
    process.release()
    this.connection.sendMessage('exit', exit)
    this.connection.end()
  }

  private forward(source: Readable, name: 'stdout' | 'stderr'): Output {
    const target = this.connection.openWritable(name)
    return { source, target, ended: pipeline(source, target).catch(() => undefined) }
  }

  private fail(thrown: unknown): void {
    this.connection.sendMessage('error', serialiseError(thrown))
    this.connection.end()
  }

  private async onCallerGone(): Promise<void> {
    this.callerIsGone = true
    if (this.process !== null && !this.hasExited) await this.process.close().catch(() => undefined)
  }
}

/** One output of the command on its way to the caller. */
interface Output {
  source: Readable
  target: Writable
  ended: Promise<void>
}

/**
 * Waits until both outputs have ended, or until nothing has come for a moment: a process left in the
 * background may hold them open, or print, for ever. A caller that reads slowly is waited for.
 */
async function waitForLateOutput(outputs: Output[]): Promise<void> {
  let quietSince = performance.now()
  const giveUpAt = quietSince + LATE_OUTPUT_MS_MAX
  const noteOutput = (): void => { quietSince = performance.now() }
  for (const { source } of outputs) source.on('data', noteOutput)
  let timer: NodeJS.Timeout | undefined
  const silence = new Promise<void>((resolve) => {
    timer = setInterval(() => {
      const isDelivered = outputs.every(({ source, target }) => source.readableLength + target.writableLength === 0)
      const now = performance.now()
      if (isDelivered && (now - quietSince >= LATE_OUTPUT_MS || now >= giveUpAt)) resolve()
    }, LATE_OUTPUT_MS / 5)
  })
  await Promise.race([Promise.all(outputs.map(({ ended }) => ended)), silence])
  clearInterval(timer)
  for (const { source } of outputs) source.destroy()
}

function numberIn(body: unknown, field: string, min: number, max: number): number {
  const value = (body as Record<string, unknown> | null)?.[field]
  if (typeof value !== 'number' || !Number.isInteger(value) || value < min || value > max) {
    throw new Kosa8Error('USAGE', `${field} must be a whole number from ${min} to ${max}`)
  }
  return value
}
