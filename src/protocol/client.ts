/**
 * Calls to a daemon, over its socket or its TCP listener.
 *
 * Owns: HTTP, errors rebuilt from the wire, streams. Does not start a daemon nor try
 * again: `sdk` does. Callers: `sdk`, and workers for their reservations.
 */
import type { IncomingMessage } from 'node:http'
import type { Duplex, Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { z } from 'zod'
import { Kosa8Error, parseError } from '../errors/kosa8-error.js'
import { requestTo, tellAddress, type DaemonAddress } from './address.js'
import { APPROVAL_HEADER } from './approvals.js'
import type { GuardedName } from './guarded-calls.js'
import { METHODS, fillPath, type MethodName, type ResponseOf } from './methods.js'
import { reservationLineSchema, type ReservationLine, type ReservationRequest } from './reservations.js'
import { EXEC_UPGRADE, STREAM_PATHS, splitLines } from './streams.js'

/** Largest JSON answer that is read, in bytes. */
const ANSWER_BYTES_MAX = 64 * 1024 * 1024

type InputOf<Name extends MethodName, Part extends 'params' | 'body'> = z.input<(typeof METHODS)[Name][Part]>
/** Parameters and body of a method; what is empty may be left out. A guarded call may carry the id of its approval. */
export type CallInput<Name extends MethodName> =
  & (Record<string, never> extends InputOf<Name, 'params'> ? { params?: InputOf<Name, 'params'> } : { params: InputOf<Name, 'params'> })
  & (Record<string, never> extends InputOf<Name, 'body'> ? { body?: InputOf<Name, 'body'> } : { body: InputOf<Name, 'body'> })
  & (Name extends GuardedName ? { approval?: string | undefined } : unknown)

/**
 * Calls a method of the table.
 * @throws the daemon's own error; DAEMON_UNREACHABLE, with `details.reached` false when the call never got
 * there; CANCELLED when the signal is aborted.
 */
export async function callMethod<Name extends MethodName>(
  address: DaemonAddress, name: Name, input: CallInput<Name>, signal?: AbortSignal,
): Promise<ResponseOf<Name>> {
  const method = METHODS[name]
  const { params, body, approval } = input as { params?: Record<string, string>; body?: unknown; approval?: string }
  const answer = await openStream(address, {
    verb: method.verb,
    path: fillPath(method.path, params ?? {}),
    ...(method.verb === 'POST' ? { json: body ?? {} } : {}),
    ...(approval === undefined ? {} : { headers: { [APPROVAL_HEADER]: approval } }),
    signal,
  })
  const parsed = method.response.safeParse(parseJson(await readBounded(answer)))
  if (parsed.success) return parsed.data as ResponseOf<Name>
  throw new Kosa8Error('DAEMON_VERSION', `the daemon's answer to ${name} has a form this version does not know`, {
    hint: 'run `kosa8 daemon stop`, then the command again', cause: parsed.error,
  })
}

/** A request whose answer is read as a stream. At most one of `json` and `content` is given. */
export interface StreamRequest {
  verb: 'GET' | 'POST' | 'PUT' | 'DELETE'
  path: string
  json?: unknown
  content?: Readable | Uint8Array | string
  headers?: Record<string, string>
  signal?: AbortSignal | undefined
}

/** Sends a request and resolves with the answer once it is known to be a success. Errors as in {@link callMethod}. */
export async function openStream(address: DaemonAddress, wanted: StreamRequest): Promise<IncomingMessage> {
  const content = wanted.json === undefined ? wanted.content : JSON.stringify(wanted.json)
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    const outgoing = requestTo(address, {
      method: wanted.verb, path: wanted.path, agent: false,
      headers: {
        ...wanted.headers,
        ...(content === undefined ? {} : { 'content-type': wanted.json === undefined ? 'application/octet-stream' : 'application/json' }),
      },
      ...(wanted.signal === undefined ? {} : { signal: wanted.signal }),
    })
    outgoing.once('response', resolve)
    outgoing.once('error', (error) => reject(unreachable(error, address)))
    if (content === undefined || typeof content === 'string' || content instanceof Uint8Array) outgoing.end(content)
    else {
      // What the content itself fails with is the caller's own, and says more than the connection that breaks off with it.
      content.once('error', reject)
      // A daemon that refuses answers before it has read everything: its answer says more than the broken pipe.
      pipeline(content, outgoing).catch((error: unknown) => { if (!outgoing.destroyed) outgoing.destroy(error as Error) })
    }
  })
  if (answer.statusCode === 200) return answer
  throw errorIn(await readBounded(answer)) ?? parseError(null)
}

/** An upgraded connection and the bytes that came with it. */
export interface UpgradedConnection {
  socket: Duplex
  head: Buffer
}

/** Opens the connection for a command in a sandbox. */
export async function openExecSocket(address: DaemonAddress, sandbox: string): Promise<UpgradedConnection> {
  return new Promise((resolve, reject) => {
    const outgoing = requestTo(address, {
      path: fillPath(STREAM_PATHS.exec, { name: sandbox }), agent: false,
      headers: { connection: 'Upgrade', upgrade: EXEC_UPGRADE },
    })
    outgoing.once('upgrade', (_answer, socket, head) => resolve({ socket, head }))
    outgoing.once('response', (answer) => {
      // Refused for its token, or for its name alone: any other error comes over the connection once it is upgraded.
      const unknown = new Kosa8Error('SANDBOX_UNKNOWN', `there is no sandbox named ${sandbox}`, { hint: 'list them with: kosa8 ls' })
      readBounded(answer).then((body) => reject(errorIn(body) ?? unknown), reject)
    })
    outgoing.once('error', (error) => reject(unreachable(error, address)))
    outgoing.end()
  })
}

/**
 * Asks for memory and holds the connection: yields each line, and gives the memory back when the signal is
 * aborted or the caller stops reading. With `adopt`, takes over the reservation of that id instead.
 */
export async function* openReservation(
  address: DaemonAddress, wanted: ReservationRequest, options: { signal: AbortSignal; adopt?: string },
): AsyncGenerator<ReservationLine, void> {
  const path = options.adopt === undefined ? STREAM_PATHS.reserve : fillPath(STREAM_PATHS.adopt, { id: options.adopt })
  let answer: IncomingMessage | undefined
  try {
    answer = await openStream(address, { verb: 'POST', path, json: wanted, signal: options.signal })
    for await (const line of splitLines(answer)) if (line !== '') yield reservationLineSchema.parse(JSON.parse(line))
  } catch (error) {
    if (options.signal.aborted) return
    throw Kosa8Error.isInstance(error) ? error : unreachable(error as Error, address)
  } finally {
    answer?.destroy()
  }
}

/** Codes of a connection that was never made. */
const NEVER_REACHED = new Set(['ENOENT', 'ECONNREFUSED', 'EACCES', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH'])

function unreachable(error: Error, address: DaemonAddress): Kosa8Error {
  if (error.name === 'AbortError') return new Kosa8Error('CANCELLED', 'the call was cancelled', { cause: error })
  const code = (error as NodeJS.ErrnoException).code ?? ''
  return new Kosa8Error('DAEMON_UNREACHABLE', `the daemon does not answer: ${error.message}`, {
    hint: 'see `kosa8 daemon status`',
    details: { address: tellAddress(address), reached: !NEVER_REACHED.has(code) },
    cause: error,
  })
}

/** Reads an answer to its end. @throws LIMIT_EXCEEDED beyond 64 MiB, DAEMON_UNREACHABLE when it breaks off. */
export async function readBounded(answer: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = []
  let sizeBytes = 0
  try {
    for await (const chunk of answer) {
      sizeBytes += (chunk as Buffer).length
      if (sizeBytes > ANSWER_BYTES_MAX) break
      chunks.push(chunk as Buffer)
    }
  } catch (error) {
    throw unreachable(error as Error, '')
  }
  if (sizeBytes > ANSWER_BYTES_MAX) {
    throw new Kosa8Error('LIMIT_EXCEEDED', `the daemon's answer is larger than ${ANSWER_BYTES_MAX} bytes`)
  }
  return Buffer.concat(chunks)
}

/** The error an answer holds; null when it holds none. */
function errorIn(body: Buffer): Kosa8Error | null {
  const error = (parseJson(body) as { error?: unknown } | null)?.error
  return error === undefined ? null : parseError(error)
}

function parseJson(text: Buffer): unknown {
  try {
    return JSON.parse(text.toString('utf8'))
  } catch {
    return null
  }
}
