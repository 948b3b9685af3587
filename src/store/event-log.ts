/**
 * The event log of a run: `events.jsonl`, written by daemon and worker at once.
 *
 * Owns: the format. One event is one write of at most 4 KiB in append mode, with a line break before
 * and after it: writers never mix, and what a killed writer left half-written spoils no other event.
 * An event's `seq` is the offset of the byte after it, so a reader goes on from the last one it saw.
 */
import { open, type FileHandle } from 'node:fs/promises'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { runEventSchema, type RunEvent } from '../model/run.js'
import { FileWatch } from './file-watch.js'

type WithoutPosition<E> = E extends RunEvent ? Omit<E, 'seq' | 'at'> : never

/** An event as its writer knows it; the log adds `at` and the reader `seq`. */
export type NewRunEvent = WithoutPosition<RunEvent>

/** Linux writes up to a page at once; kept below it so that one event is one write. */
const LINE_BYTES_MAX = 4096

/** Bytes read at once; far above one line. */
const READ_BYTES = 256 * 1024

/** Appends one event; long output becomes several events, any other long text is cut. */
export async function appendToLog(file: string, event: NewRunEvent, at: Date): Promise<void> {
  const handle = await open(file, 'a', 0o600)
  try {
    for (const line of encodeEvent(event, at.toISOString())) await handle.write(line)
  } finally {
    await handle.close()
  }
}

/**
 * Reads the events after `fromSeq` (0: from the beginning). A line still being written is left for later.
 * @throws Kosa8Error STORE_CORRUPT when a complete event is not one of ours.
 */
export async function readLog(file: string, fromSeq: number): Promise<RunEvent[]> {
  const handle = await open(file, 'r')
  try {
    const events: RunEvent[] = []
    let position = fromSeq
    for (;;) {
      const batch = await readBatch(handle, file, position)
      events.push(...batch.events)
      if (batch.end === position) return events
      position = batch.end
    }
  } finally {
    await handle.close()
  }
}

/** Yields the events after `fromSeq` as they come; ends with the run's last event or the signal. */
export async function* followLog(file: string, fromSeq: number, signal: AbortSignal): AsyncGenerator<RunEvent> {
  const watch = new FileWatch(file, signal)
  let position = fromSeq
  try {
    while (await watch.next()) {
      const events = await readLog(file, position)
      yield* events
      const last = events.at(-1)
      // A run that was taken up again has an older run-end in the middle of its log.
      if (last?.type === 'run-end') return
      position = last?.seq ?? position
    }
  } finally {
    watch.close()
  }
}

function encodeEvent(event: NewRunEvent, at: string): string[] {
  const line = `\n${JSON.stringify({ at, ...event })}\n`
  if (Buffer.byteLength(line) <= LINE_BYTES_MAX) return [line]
  if (event.type === 'trial-output') {
    return halve(event.text).flatMap((text) => encodeEvent({ ...event, text }, at))
  }
  if ('message' in event) return encodeEvent({ ...event, message: cut(event.message) }, at)
  if ('summary' in event) return encodeEvent({ ...event, summary: cut(event.summary) }, at)
  throw new Error(`an event of type ${event.type} does not fit its line`)
}

function halve(text: string): [string, string] {
  let middle = Math.floor(text.length / 2)
  // Never between the two halves of one character.
  if (/[\uDC00-\uDFFF]/.test(text.charAt(middle))) middle += 1
  return [text.slice(0, middle), text.slice(middle)]
}

function cut(text: string): string {
  return `${halve(text.replace(/ …$/, ''))[0]} …`
}

async function readBatch(handle: FileHandle, file: string, position: number): Promise<{ events: RunEvent[]; end: number }> {
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(READ_BYTES), 0, READ_BYTES, position)
  const events: RunEvent[] = []
  let start = 0
  for (;;) {
    const lineEnd = buffer.subarray(0, bytesRead).indexOf('\n', start)
    if (lineEnd === -1) return { events, end: position + start }
    const event = parseLine(buffer.toString('utf8', start, lineEnd), position + lineEnd + 1, file)
    if (event !== null) events.push(event)
    start = lineEnd + 1
  }
}

/** Null for an empty line and for the piece a killed writer left behind. */
function parseLine(line: string, seq: number, file: string): RunEvent | null {
  let value: unknown
  try {
    value = JSON.parse(line)
  } catch {
    return null
  }
  const checked = runEventSchema.safeParse({ ...(value as object), seq })
  if (checked.success) return checked.data
  throw new Kosa8Error('STORE_CORRUPT', `the event log ${file} holds an event before byte ${seq} that is not ours`, {
    hint: 'remove that line, or the run with: kosa8 runs rm', details: { file, seq }, cause: checked.error,
  })
}
