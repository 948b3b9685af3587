/**
 * Files of the guest, streamed through the agent's built-in commands.
 *
 * Owns: reading, writing, listing with bounds. Paths are never followed through links; the agent
 * refuses them. Used by `agent-session.ts`.
 */
import { pipeline } from 'node:stream/promises'
import { Readable } from 'node:stream'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { describeErrno } from './agent-process.js'
import type { GuestCommand, GuestFileEntry, GuestProcess, GuestSession } from './session.js'

const SIGTERM = 15
const MESSAGE_BYTES_MAX = 4 * 1024
/** The longest record of a listing: kind, size, path. */
const RECORD_BYTES_MAX = 4 * 1024 + 32
const LISTING_BYTES_MAX = 64 * 1024 * 1024
const KINDS: Record<string, GuestFileEntry['kind']> = { f: 'file', d: 'folder', l: 'link', o: 'other', t: 'truncated' }

/** What the agent says it was doing when it found a device or a pipe. */
const NOT_A_FILE = 'not a regular file'
const EINVAL = 22

type Executor = Pick<GuestSession, 'exec'>

/** Starts one of the agent's built-in commands; what it refuses is told as the user asked for it. */
async function start(session: Executor, command: GuestCommand, what: string): Promise<GuestProcess> {
  try {
    return await session.exec(command)
  } catch (error) {
    if (!Kosa8Error.isInstance(error) || typeof error.details['errno'] !== 'number') throw error
    const reason = error.details['step'] === NOT_A_FILE && error.details['errno'] === EINVAL ? NOT_A_FILE : describeErrno(error.details['errno'])
    throw new Kosa8Error(error.code, `${what} in the guest failed: ${reason}`, { details: error.details, cause: error })
  }
}

/** See {@link GuestSession.readFile}. */
export async function readGuestFile(session: Executor, path: string, options: { bytesMax: number }): Promise<Readable> {
  const process = await start(session, { argv: ['@get', path, String(options.bytesMax)] }, `reading ${path}`)
  const stream = Readable.from(readChecked(process, path, options.bytesMax), { objectMode: false })
  stream.on('error', () => undefined) // whoever reads gets it; whoever does not must not be ended by it
  stream.once('close', () => void process.close().catch(() => undefined))
  return stream
}

async function* readChecked(process: GuestProcess, path: string, bytesMax: number): AsyncGenerator<Buffer> {
  const message = collectMessage(process.stderr)
  let sizeBytes = 0
  for await (const chunk of process.stdout) {
    sizeBytes += (chunk as Buffer).length
    if (sizeBytes > bytesMax) throw new Kosa8Error('LIMIT_EXCEEDED', `${path} has more than ${bytesMax} bytes`)
    yield chunk as Buffer
  }
  await throwIfFailed(process, `reading ${path}`, message)
}

/** See {@link GuestSession.writeFile}. */
export async function writeGuestFile(
  session: Executor, path: string, content: Readable | Uint8Array | string, options: { mode?: number; user?: string } = {},
): Promise<void> {
  const mode = (options.mode ?? 0o644).toString(8)
  const process = await start(session, { argv: ['@put', path, mode, options.user ?? ''], stdin: true }, `writing ${path}`)
  try {
    const message = collectMessage(process.stderr)
    process.stdout.resume()
    await sendContent(process, content)
    await throwIfFailed(process, `writing ${path}`, message)
  } finally {
    await process.close()
  }
}

/** A source that fails ends the transfer before its end of file, so the target stays as it was. */
async function sendContent(process: GuestProcess, content: Readable | Uint8Array | string): Promise<void> {
  const { stdin } = process
  if (stdin === null) return
  if (!(content instanceof Readable)) {
    stdin.end(content)
    return
  }
  try {
    await pipeline(content, stdin)
  } catch (error) {
    await process.signal(SIGTERM)
    await process.exited
    throw error
  }
}

/** See {@link GuestSession.listFiles}. */
export async function listGuestFiles(session: Executor, root: string, options: { entriesMax: number }): Promise<GuestFileEntry[]> {
  const process = await start(session, { argv: ['@list', root, String(options.entriesMax)] }, `listing ${root}`)
  const limit = Math.min(LISTING_BYTES_MAX, (options.entriesMax + 1) * RECORD_BYTES_MAX)
  try {
    const message = collectMessage(process.stderr)
    const chunks: Buffer[] = []
    let sizeBytes = 0
    for await (const chunk of process.stdout) {
      sizeBytes += (chunk as Buffer).length
      if (sizeBytes > limit) throw new Kosa8Error('LIMIT_EXCEEDED', `the listing of ${root} is too long`)
      chunks.push(chunk as Buffer)
    }
    await throwIfFailed(process, `listing ${root}`, message)
    return parseListing(Buffer.concat(chunks).toString('utf8'), options.entriesMax)
  } finally {
    await process.close()
  }
}

function parseListing(text: string, entriesMax: number): GuestFileEntry[] {
  const records = text.split('\0').slice(0, -1)
  if (records.length > entriesMax + 1) throw new Kosa8Error('GUEST_PROTOCOL', 'the guest listed more files than it was asked for')
  return records.map((record) => {
    const match = /^([fdlot]) (\d{1,15}) (.*)$/s.exec(record)
    const kind = KINDS[match?.[1] ?? '']
    if (match === null || kind === undefined) throw new Kosa8Error('GUEST_PROTOCOL', 'the guest sent an unreadable listing')
    return { kind, sizeBytes: Number(match[2]), path: match[3] ?? '' }
  })
}

async function throwIfFailed(process: GuestProcess, what: string, message: Promise<string>): Promise<void> {
  const exit = await process.exited
  if (exit.code === 0) return
  const reason = (await message) || `exit status ${exit.code ?? `signal ${exit.signal}`}`
  throw new Kosa8Error('GUEST_COMMAND_FAILED', `${what} in the guest failed: ${reason}`)
}

async function collectMessage(stream: Readable): Promise<string> {
  let text = ''
  try {
    for await (const chunk of stream) {
      if (text.length < MESSAGE_BYTES_MAX) text += String(chunk)
    }
  } catch {
    return ''
  }
  return text.slice(0, MESSAGE_BYTES_MAX).replace(/[\u0000-\u001f\u007f-\u009f]+/g, ' ').trim()
}
