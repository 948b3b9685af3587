/**
 * The calls that are more than one question and one answer, by path and form.
 *
 * Owns: their paths, and the text forms of event and line streams. Exec has its own framing in
 * `exec-frames.ts`.
 *
 * - exec: GET with `Upgrade: kosa8-exec`, then frames both ways.
 * - sandbox file: PUT and GET, the body is the file.
 * - run events: server-sent events, `id:` is the sequence number.
 * - run file, run diff: GET, the body is the file or patch.
 * - reservations: POST, one JSON line per change, held open.
 */
export const STREAM_PATHS = {
  exec: '/v1/sandboxes/:name/exec',
  sandboxFile: '/v1/sandboxes/:name/file',
  runEvents: '/v1/runs/:id/events',
  runFile: '/v1/runs/:id/files/*',
  runDiff: '/v1/runs/:id/diff',
  reserve: '/v1/reservations',
  adopt: '/v1/reservations/:id/adopt',
} as const

/** Value of the Upgrade header of an exec connection. */
export const EXEC_UPGRADE = 'kosa8-exec'

/** Largest file of a run's folder that is served, in bytes. */
export const RUN_FILE_BYTES_MAX = 1024 ** 3

/** Longest line of a stream, in bytes; a longer one is a fault of the other end. */
export const LINE_BYTES_MAX = 8 * 1024 * 1024

/** One server-sent event. */
export interface ServerSentEvent {
  id: string | null
  data: string
}

/** Text of one event; `data` is one line (JSON). */
export function formatEvent(id: number, data: string): string {
  return `id: ${id}\ndata: ${data}\n\n`
}

/** A comment that keeps a silent connection known to be alive. */
export const EVENT_HEARTBEAT = ': alive\n\n'

/** Splits bytes into lines without their ends; the last unfinished line is dropped. */
export async function* splitLines(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  let pending: Buffer[] = []
  let pendingBytes = 0
  for await (const chunk of bytes) {
    let rest = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength)
    for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10)) {
      pending.push(rest.subarray(0, end))
      yield Buffer.concat(pending).toString('utf8')
      pending = []
      pendingBytes = 0
      rest = rest.subarray(end + 1)
    }
    pendingBytes += rest.length
    if (pendingBytes > LINE_BYTES_MAX) throw new Error(`a line of more than ${LINE_BYTES_MAX} bytes`)
    if (rest.length > 0) pending.push(rest)
  }
}

/** Reads server-sent events; comments and fields we do not use are skipped. */
export async function* parseEvents(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<ServerSentEvent> {
  let id: string | null = null
  let lines: string[] = []
  for await (const line of splitLines(bytes)) {
    if (line === '') {
      if (lines.length > 0) yield { id, data: lines.join('\n') }
      lines = []
    } else if (line.startsWith('id: ')) {
      id = line.slice(4)
    } else if (line.startsWith('data: ')) {
      lines.push(line.slice(6))
    }
  }
}
