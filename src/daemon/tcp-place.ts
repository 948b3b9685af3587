/**
 * Where the daemon listens on TCP: nowhere, or in one place, from when it is told to until it ends.
 *
 * Owns: that state. How it listens is in `server/tcp-listener.ts`.
 */
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { ListenRequest, Listening } from '../protocol/status.js'
import { openTcpListener, type TcpListener } from './server/tcp-listener.js'
import type { Services } from './services.js'

/** The one TCP listener a daemon can have. */
export class TcpPlace {
  private opening: Promise<TcpListener> | null = null
  /** Null: nowhere. */
  listening: Listening | null = null

  constructor(private readonly tokenFile: string, private readonly services: () => Services) {}

  /** @throws CONFIG_INVALID, also when it listens already. */
  async open(request: ListenRequest): Promise<Listening> {
    if (this.opening !== null) {
      throw new Kosa8Error('CONFIG_INVALID', `the daemon listens already${this.listening === null ? '' : ` on ${this.listening.url}`}`, {
        hint: 'run `kosa8 daemon stop` first: sandboxes go on running',
      })
    }
    this.opening = openTcpListener(this.services(), request, this.tokenFile)
    try {
      this.listening = { url: (await this.opening).url, tokenFile: this.tokenFile }
      return this.listening
    } catch (error) {
      this.opening = null
      throw error
    }
  }

  async close(): Promise<void> {
    const listener = await this.opening?.catch(() => null)
    await listener?.close()
  }
}
