/**
 * Who may call over TCP: whoever sends the token, and no web page.
 *
 * Owns: those checks, made before anything of a request but its head is read. 32 random bytes are not guessed; failures are
 * bounded only so that they cost and log little, and never keep the owner of the token out.
 */
import { createHash, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { Kosa8Error } from '../../errors/kosa8-error.js'
import { isLoopbackName } from '../../model/remote-daemon.js'

/** Wrong tokens within a minute that are answered with what is wrong. */
const FAILURES_PER_MINUTE_MAX = 30
const MINUTE_MS = 60_000

/** Why a request is refused, and the HTTP status that says so. */
export interface Refusal {
  status: 401 | 403 | 429
  error: Kosa8Error
}

/** The checks of one listener. */
export class TcpGate {
  private readonly expected: Buffer
  private failures = 0
  private windowStartedAt = 0

  /** @param isEncrypted false: it listens on a loopback address, and only requests that name one are answered */
  constructor(token: string, private readonly isEncrypted: boolean) {
    this.expected = digest(token)
  }

  /** Null for a request that may go on. */
  check({ headers }: IncomingMessage): Refusal | null {
    if (headers.origin !== undefined || headers['sec-fetch-site'] !== undefined) {
      return { status: 403, error: new Kosa8Error('UNAUTHORISED', 'requests from web pages are not answered') }
    }
    // A page whose host name was bent to this address (DNS rebinding) names its own host.
    if (!this.isEncrypted && !isLoopbackName(hostOf(headers.host))) {
      return { status: 403, error: new Kosa8Error('UNAUTHORISED', 'this listener answers to the loopback names of its host only') }
    }
    const given = /^Bearer (\S+)$/i.exec(headers.authorization ?? '')?.[1] ?? ''
    return timingSafeEqual(digest(given), this.expected) ? null : this.countFailure()
  }

  private countFailure(): Refusal {
    const now = performance.now()
    if (now - this.windowStartedAt > MINUTE_MS) {
      this.windowStartedAt = now
      this.failures = 0
    }
    this.failures += 1
    if (this.failures > FAILURES_PER_MINUTE_MAX) {
      return { status: 429, error: new Kosa8Error('UNAUTHORISED', 'too many requests without the right token', { hint: 'wait a minute' }) }
    }
    return {
      status: 401,
      error: new Kosa8Error('UNAUTHORISED', 'this daemon answers only to whoever sends its token', {
        hint: 'set KOSA8_TOKEN, or KOSA8_TOKEN_FILE to a copy of the file that `kosa8 daemon status` names on its host',
      }),
    }
  }
}

/** Digests are of one length, whatever was sent. */
function digest(token: string): Buffer {
  return createHash('sha256').update(token).digest()
}

function hostOf(header: string | undefined): string {
  return (header ?? '').replace(/:\d+$/, '').toLowerCase()
}
