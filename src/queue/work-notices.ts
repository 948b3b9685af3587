/**
 * Waking those who wait for work.
 *
 * Owns: one connection that listens to the event streams of both queues. Reading them takes nothing
 * away from anybody, so any number of workers can listen.
 */
import type { Redis } from 'ioredis'

/** One blocking read; Redis ends it by itself, so that a dead connection is noticed. */
const READ_BLOCK_MS = 5000

/** Events after which there may be something to claim. */
const EVENTS = ['waiting', 'delayed', 'stalled']

/** Notices of possible work. */
export class WorkNotices {
  private client: Redis | null = null
  private version = 0
  private readonly waiting = new Set<() => void>()
  /** What each waiter has seen, by its signal, so that a notice between two waits is not lost. */
  private readonly seen = new WeakMap<AbortSignal, number>()

  /**
   * @param streams keys of the event streams
   * @param waitMaxMs longest wait: delayed work comes due, and Redis loses its data, without a notice
   */
  constructor(private readonly connection: Redis, private readonly streams: string[], private readonly waitMaxMs: number) {}

  /** Resolves at a notice the caller (known by its signal) has not seen, after `waitMaxMs`, or when the signal fires. */
  async wait(signal: AbortSignal): Promise<void> {
    if (this.client === null) this.listen()
    if (signal.aborted) return
    if (this.seen.get(signal) === this.version) await this.waitForNotice(signal)
    this.seen.set(signal, this.version)
  }

  close(): void {
    this.client?.disconnect()
    for (const wake of this.waiting) wake()
  }

  private async waitForNotice(signal: AbortSignal): Promise<void> {
    let timer: NodeJS.Timeout | undefined
    let wake = (): void => undefined
    try {
      await new Promise<void>((resolve) => {
        wake = resolve
        this.waiting.add(wake)
        timer = setTimeout(resolve, this.waitMaxMs)
        signal.addEventListener('abort', wake, { once: true })
      })
    } finally {
      clearTimeout(timer)
      this.waiting.delete(wake)
      signal.removeEventListener('abort', wake)
    }
  }

  private listen(): void {
    const client = this.connection.duplicate()
    client.on('error', () => undefined)
    this.client = client
    this.follow(client).catch(() => undefined)
  }

  /** Ends when the connection is closed by us; a Redis that went away is waited for. */
  private async follow(client: Redis): Promise<void> {
    const ids = new Map<string, string>()
    for (const stream of this.streams) ids.set(stream, (await client.xrevrange(stream, '+', '-', 'COUNT', 1))[0]?.[0] ?? '0-0')
    this.notify()
    for (;;) {
      const answer = await client.xread('BLOCK', READ_BLOCK_MS, 'STREAMS', ...this.streams, ...ids.values())
      for (const [stream, entries] of answer ?? []) {
        ids.set(stream, entries.at(-1)?.[0] ?? '0-0')
        if (entries.some(([, fields]) => EVENTS.includes(fields[fields.indexOf('event') + 1] ?? ''))) this.notify()
      }
    }
  }

  private notify(): void {
    this.version += 1
    for (const wake of this.waiting) wake()
  }
}
