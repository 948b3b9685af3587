/** A command of the in-memory services: what it does is decided by its first word. */
import { PassThrough, Readable } from 'node:stream'
import type { GuestExit, GuestProcess, LeftoverProcess } from '../../src/guest/session.js'
import type { ExecRequest } from '../../src/protocol/sandboxes.js'
import { createDeferred } from '../../src/util/deferred.js'

const VERBS = ['cat', 'flood', 'print', 'daemon', 'chatter', 'wait']

/**
 * `cat` copies its input; `flood N` prints N bytes and notes how far it got; `print OUT ERR` prints and ends;
 * `daemon` ends and leaves its output open; `chatter` ends and goes on printing; `wait` ends by a signal only.
 */
export class MemoryProcess implements GuestProcess {
  readonly stdin: PassThrough | null
  stdout: Readable = new PassThrough()
  readonly stderr = new PassThrough()
  readonly sizes: { rows: number; columns: number }[] = []
  producedBytes = 0
  isClosed = false
  isReleased = false
  isEnded = false
  private readonly end = createDeferred<GuestExit>()
  readonly exited = this.end.promise
  private chatter: NodeJS.Timeout | undefined

  constructor(readonly request: ExecRequest) {
    this.stdin = request.stdin === true ? new PassThrough() : null
    const [verb, ...args] = request.argv
    const output = this.stdout as PassThrough
    if (verb !== undefined && !VERBS.includes(verb)) throw new Error(`a process in memory cannot ${verb}`)
    if (verb === 'cat') this.cat(output)
    if (verb === 'flood') this.flood(Number(args[0]))
    if (verb === 'print') {
      output.end(args[0])
      this.stderr.end(args[1])
      this.end.resolve({ code: Number(args[2] ?? 0), signal: null })
    }
    if (verb === 'daemon' || verb === 'chatter') {
      output.write('started')
      if (verb === 'chatter') this.chatter = setInterval(() => output.write('log\n'), 20)
      this.end.resolve({ code: 0, signal: null })
    }
  }

  async signal(signal: number): Promise<void> {
    this.finish({ code: null, signal })
  }

  async resize(size: { rows: number; columns: number }): Promise<void> {
    this.sizes.push(size)
  }

  release(): void {
    this.isReleased = true
  }

  async close(): Promise<LeftoverProcess[]> {
    this.isClosed = true
    this.finish({ code: null, signal: 9 })
    return []
  }

  private cat(output: PassThrough): void {
    this.stdin?.pipe(output)
    output.once('end', () => this.finish({ code: 0, signal: null }))
  }

  private flood(bytes: number): void {
    this.stdout = new Readable({
      read: (size) => {
        const length = Math.min(size, bytes - this.producedBytes)
        this.producedBytes += length
        this.stdout.push(length === 0 ? null : Buffer.alloc(length, this.producedBytes % 256))
        if (length === 0) this.finish({ code: 0, signal: null })
      },
    })
  }

  private finish(exit: GuestExit): void {
    this.isEnded = true
    clearInterval(this.chatter)
    if (this.stdout instanceof PassThrough) this.stdout.end()
    this.stderr.end()
    this.end.resolve(exit)
  }
}
