/**
 * The guest of a fake machine: a program that answers on the channel and whose state can be saved.
 *
 * Owns: the contract, and a small guest that keeps two values, one in memory and one on disk.
 */
import type { Duplex } from 'node:stream'

/** What runs in a fake machine. It gets no time while the machine is paused. */
export interface FakeGuest {
  /** A new host has opened the channel; the former one is closed. */
  serve(channel: Duplex): void
  /** Everything the guest knows, as text. */
  save(): string
  /** The vCPUs stop or go on. */
  setPaused(isPaused: boolean): void
}

/** Makes a guest: fresh with `state` null, else as it was when `state` was saved. */
export type FakeGuestMaker = (state: string | null) => FakeGuest

/**
 * A guest that speaks lines: `set memory TEXT` and `set disk TEXT` answer `ok`, `get memory` and `get disk`
 * answer the text.
 */
export class ValueGuest implements FakeGuest {
  private readonly values: Record<string, string>
  private channel: Duplex | null = null
  private pendingText = ''
  private isPaused = false

  constructor(state: string | null) {
    this.values = state === null ? {} : JSON.parse(state) as Record<string, string>
  }

  serve(channel: Duplex): void {
    this.channel = channel
    this.pendingText = ''
    channel.on('data', (chunk: Buffer) => {
      if (this.channel !== channel) return
      this.pendingText += chunk.toString('utf8')
      this.work()
    })
  }

  save(): string {
    return JSON.stringify(this.values)
  }

  setPaused(isPaused: boolean): void {
    this.isPaused = isPaused
    this.work()
  }

  private work(): void {
    for (let end = this.pendingText.indexOf('\n'); end >= 0 && !this.isPaused; end = this.pendingText.indexOf('\n')) {
      const line = this.pendingText.slice(0, end)
      this.pendingText = this.pendingText.slice(end + 1)
      this.channel?.write(`${this.answer(line)}\n`)
    }
  }

  private answer(line: string): string {
    const [verb = '', place = '', ...words] = line.split(' ')
    if (verb === 'get') return this.values[place] ?? ''
    if (verb !== 'set') return `unknown: ${line}`
    this.values[place] = words.join(' ')
    return 'ok'
  }
}
