/**
 * Waiting for a file to change, without polling it busily.
 *
 * Owns: the watch and its fall-back: hosts run out of watches, and some file systems report nothing,
 * so a look once a second is taken as well.
 */
import { watch, type FSWatcher } from 'node:fs'

/** How often to look when no notice comes, milliseconds. */
const LOOK_INTERVAL_MS = 1000

/** Notices of changes to one file or folder; a change between two calls of {@link next} is not lost. */
export class FileWatch {
  private watcher: FSWatcher | null = null
  private readonly timer: NodeJS.Timeout
  private isChanged = true
  private wake: (() => void) | null = null
  private readonly onAbort = (): void => this.close()
  private isClosed = false

  /** @param signal ends the watch; {@link next} then answers false */
  constructor(path: string, private readonly signal: AbortSignal) {
    try {
      this.watcher = watch(path, { persistent: false }, () => this.notice())
      this.watcher.on('error', () => this.watcher?.close())
    } catch {
      this.watcher = null
    }
    this.timer = setInterval(() => this.notice(), LOOK_INTERVAL_MS)
    signal.addEventListener('abort', this.onAbort, { once: true })
    if (signal.aborted) this.close()
  }

  /** True at once the first time and after each possible change; false when the watch has ended. */
  async next(): Promise<boolean> {
    if (!this.isChanged && !this.isClosed) {
      await new Promise<void>((resolve) => { this.wake = resolve })
    }
    this.isChanged = false
    return !this.isClosed
  }

  close(): void {
    this.isClosed = true
    this.watcher?.close()
    clearInterval(this.timer)
    this.signal.removeEventListener('abort', this.onAbort)
    this.notice()
  }

  private notice(): void {
    this.isChanged = true
    this.wake?.()
    this.wake = null
  }
}
