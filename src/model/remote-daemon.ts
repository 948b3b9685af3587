/**
 * The address of a daemon that is reached over TCP.
 *
 * Owns: its form, and the rule that a token travels in clear text only within one host. Pure: names are not resolved.
 */
import { Kosa8Error } from '../errors/kosa8-error.js'

/** A daemon's listener and the token it asks for. */
export interface RemoteDaemon {
  /** `http://HOST:PORT` or `https://HOST:PORT`, without a path. */
  url: string
  token: string
}

/**
 * Checks a token, which is sent in a header.
 * @param name what it was given as, for errors; the token itself is not repeated
 * @throws CONFIG_INVALID
 */
export function parseDaemonToken(text: string, name: string): string {
  const token = text.trim()
  if (/^[\x21-\x7e]+$/.test(token)) return token
  throw new Kosa8Error('CONFIG_INVALID', `${name} is no token: a token is one word of letters, digits, dashes and underscores`, {
    hint: 'it is in the file that `kosa8 daemon status` names on the daemon\'s host',
  })
}

/** True for a name or address of this very host; `[::1]` is written with its brackets. */
export function isLoopbackName(host: string): boolean {
  return host === 'localhost' || host === '[::1]' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host)
}

/**
 * Checks the address of a daemon.
 * @param name what the address was given as, for errors
 * @throws CONFIG_INVALID
 */
export function parseDaemonUrl(text: string, name: string): string {
  const url = URL.canParse(text) ? new URL(text) : null
  const hasMore = url !== null && (url.pathname !== '/' || url.search !== '' || url.hash !== '' || url.username !== '' || url.password !== '')
  if (url === null || !/^https?:$/.test(url.protocol) || hasMore) {
    throw new Kosa8Error('CONFIG_INVALID', `${name} must be an address such as https://build.example:8443 and nothing more`)
  }
  if (url.protocol === 'http:' && !isLoopbackName(url.hostname)) {
    throw new Kosa8Error('CONFIG_INVALID', `${name} must begin with https:// for another host: over http:// anybody in between reads the token`, {
      hint: 'let the daemon listen with --tls-cert and --tls-key, or reach its loopback address through ssh -L',
    })
  }
  return url.origin
}
