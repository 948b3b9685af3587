/**
 * A queue between one who says things and one who reads them as they come.
 */
import { createDeferred } from './deferred.js'

/** Values are read in the order they were pushed; `end` closes the channel after what is in it. */
export class LineChannel<T> {
  private readonly values: T[] = []
  private isEnded = false
  private changed = createDeferred<void>()

  push(value: T): void {
    if (this.isEnded) return
    this.values.push(value)
    this.wake()
  }

  /** Closes the channel, with a last value if there is one. */
  end(value?: T): void {
    if (value !== undefined) this.push(value)
    this.isEnded = true
    this.wake()
  }

  /** Yields values until the channel is closed or the signal fires. One reader at a time. */
  async *read(signal: AbortSignal): AsyncGenerator<T> {
    const onAbort = (): void => this.end()
    if (signal.aborted) return
    signal.addEventListener('abort', onAbort, { once: true })
    try {
      for (;;) {
        while (this.values.length > 0) yield this.values.shift() as T
        if (this.isEnded) return
        await this.changed.promise
      }
    } finally {
      signal.removeEventListener('abort', onAbort)
    }
  }

  private wake(): void {
    this.changed.resolve()
    this.changed = createDeferred<void>()
  }
}
