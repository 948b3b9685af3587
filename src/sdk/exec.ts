/** Commands in a sandbox, from the caller's side of an exec connection. */
import type { Readable, Writable } from 'node:stream'
import { Kosa8Error, parseError } from '../errors/kosa8-error.js'
import type { UpgradedConnection } from '../protocol/client.js'
import { ExecConnection } from '../protocol/exec-frames.js'
import { execExitSchema, type ExecExit, type ExecRequest } from '../protocol/sandboxes.js'
import { createDeferred } from '../util/deferred.js'

/** A command running in a sandbox. Read both outputs, or destroy them, until they end. */
export interface SandboxProcess {
  /** Null unless the command was started with `stdin: true`. */
  readonly stdin: Writable | null
  readonly stdout: Readable
  readonly stderr: Readable
  /** Settles when the command has ended; rejects with the daemon's error, or DAEMON_UNREACHABLE. */
  readonly exited: Promise<ExecExit>
  /** Sends a signal, by number, to every process of the command. */
  signal(signal: number): void
  resize(size: { rows: number; columns: number }): void
  /** Gives up the connection; the command is killed. */
  close(): void
}

/** Starts a command on an opened connection; resolves once it runs. @throws the daemon's error. */
export async function startProcess({ socket, head }: UpgradedConnection, command: ExecRequest): Promise<SandboxProcess> {
  const started = createDeferred<void>()
  const exited = createDeferred<ExecExit>()
  const refuse = (error: Kosa8Error): void => {
    started.reject(error)
    exited.reject(error)
  }
  const connection = new ExecConnection(socket, head, {
    onMessage: (name, body) => {
      if (name === 'started') started.resolve()
      if (name === 'error') refuse(parseError(body))
      if (name === 'exit') {
        connection.finishReadables()
        exited.resolve(execExitSchema.parse(body))
      }
    },
    onClose: (error) => refuse(error ?? new Kosa8Error('DAEMON_UNREACHABLE', 'the daemon ended while the command was running')),
  })
  const stdout = connection.openReadable('stdout')
  const stderr = connection.openReadable('stderr')
  const stdin = connection.openWritable('stdin')
  connection.sendMessage('start', command)
  await started.promise
  return {
    stdin: command.stdin === true ? stdin : null,
    stdout,
    stderr,
    exited: exited.promise,
    signal: (signal) => connection.sendMessage('signal', { signal }),
    resize: (size) => connection.sendMessage('resize', size),
    close: () => connection.destroy(),
  }
}
