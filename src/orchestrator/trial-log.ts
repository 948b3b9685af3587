/**
 * The log of one trial: everything its commands printed, bounded, on disk and as live events.
 *
 * Owns: the bounds. The head of the output is kept in full, then the tail; what lies between is counted. A log for which the disk
 * has no room ends early, and that is no failure of the trial.
 * Text comes from the guest and is stored as it is: whoever shows it makes control characters visible.
 */
import { createWriteStream, type WriteStream } from 'node:fs'
import { finished } from 'node:stream/promises'
import { toKosa8Error } from '../errors/kosa8-error.js'

/** Bytes of output kept from the start, and from the end. */
const HEAD_BYTES = 4 * 1024 * 1024
const TAIL_BYTES = 1024 * 1024
/** Bytes of output that are also sent as live events. */
const LIVE_BYTES = 512 * 1024

export type LogStream = 'stdout' | 'stderr' | 'log'

/** Receives pieces of output for live display. */
export type LiveOutput = (stream: LogStream, text: string) => void

/** Collects the output of one trial. */
export class TrialLog {
  private readonly file: WriteStream
  private writtenBytes = 0
  private liveBytes = 0
  private tail: Buffer[] = []
  private tailBytes = 0
  private leftOutBytes = 0
  private failure: Error | undefined

  constructor(path: string, private readonly onLive: LiveOutput) {
    this.file = createWriteStream(path, { flags: 'w', mode: 0o600 })
    this.file.on('error', (error) => { this.failure ??= error })
  }

  /** Adds a line of our own. */
  line(text: string): void {
    this.add('log', Buffer.from(`${text}\n`))
  }

  /** Adds output as it came. */
  add(stream: LogStream, chunk: Buffer): void {
    this.sendLive(stream, chunk)
    const room = Math.max(0, HEAD_BYTES - this.writtenBytes)
    const head = chunk.subarray(0, room)
    if (head.length > 0) this.file.write(head)
    this.writtenBytes += head.length
    if (chunk.length > room) this.keepTail(chunk.subarray(room))
  }

  /** Why the file lacks what came last; null: it does not. */
  get loss(): string | null {
    return this.failure === undefined ? null : `its log ends early: ${toKosa8Error(this.failure).message}`
  }

  /** The last part of everything added, for messages such as "asked for input". */
  lastLine(): string {
    return this.recent.trimEnd().split('\n').at(-1) ?? ''
  }

  private recent = ''

  private sendLive(stream: LogStream, chunk: Buffer): void {
    const text = chunk.toString('utf8')
    this.recent = (this.recent + text).slice(-2000)
    if (this.liveBytes >= LIVE_BYTES) return
    this.liveBytes += chunk.length
    this.onLive(stream, text)
    if (this.liveBytes >= LIVE_BYTES) this.onLive('log', 'further output is in the log of the trial only\n')
  }

  private keepTail(chunk: Buffer): void {
    // A copy: the chunk may be a view into a much larger buffer that would stay alive with it.
    this.tail.push(Buffer.from(chunk))
    this.tailBytes += chunk.length
    while (this.tailBytes > TAIL_BYTES && this.tail.length > 1) {
      const dropped = this.tail.shift() as Buffer
      this.tailBytes -= dropped.length
      this.leftOutBytes += dropped.length
    }
  }

  /** Writes the tail and closes the file. @throws the first error of the file, unless it is that the disk was full. */
  async close(): Promise<void> {
    if (this.leftOutBytes > 0) this.file.write(`\n[${this.leftOutBytes} bytes left out]\n`)
    for (const chunk of this.tail) this.file.write(chunk)
    this.file.end()
    await finished(this.file).catch((error: Error) => { this.failure ??= error })
    if (this.failure !== undefined && toKosa8Error(this.failure).code !== 'DISK_FULL') throw this.failure
  }
}
