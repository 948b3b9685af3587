/**
 * Paths that lead over symbolic links of the guest.
 *
 * The agent follows no link, so that evidence is what it says it is. Who asks for a file by name means what a
 * program in the guest would find there: `/bin` and `/etc/os-release` are links. Caller: the daemon's sandboxes.
 */
import { Kosa8Error } from '../errors/kosa8-error.js'
import { runInGuest } from './run-in-guest.js'
import type { GuestSession } from './session.js'

/** Linux's number for a link where none is followed. */
const ELOOP = 40
/** Longest path that is read, bytes, and the time the guest has to tell it, milliseconds. */
const PATH_BYTES_MAX = 4096
const RESOLVE_MS_MAX = 10_000

/**
 * Does `work` with a path, and where a link is in the way once more with the path the guest resolves it to.
 * @throws what `work` throws; where the guest has no `readlink`, what it threw at first
 */
export async function followLinks<T>(session: Pick<GuestSession, 'exec'>, path: string, work: (path: string) => Promise<T>): Promise<T> {
  try {
    return await work(path)
  } catch (error) {
    if (!Kosa8Error.isInstance(error) || error.details['errno'] !== ELOOP) throw error
    const resolved = await resolveInGuest(session, path).catch(() => null)
    if (resolved === null) throw error
    return work(resolved)
  }
}

async function resolveInGuest(session: Pick<GuestSession, 'exec'>, path: string): Promise<string | null> {
  const { exit, stdout } = await runInGuest(session, { argv: ['readlink', '-f', '--', path] }, { outputBytesMax: PATH_BYTES_MAX + 1, timeoutMs: RESOLVE_MS_MAX })
  const resolved = stdout.toString().replace(/\n$/, '')
  return exit.code === 0 && resolved.startsWith('/') ? resolved : null
}
