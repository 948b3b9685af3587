/**
 * The calls that are for the daemon's own host only, and why: over TCP they are refused.
 *
 * Owns: that one table. A path on the caller's disk means something else, or nothing, on the daemon's; and whoever has
 * the token uses the daemon, but does not run it. The server refuses; clients ask first, to say so before they begin.
 */
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { BodyOf, MethodName } from './methods.js'

const OPERATION = 'the daemon is looked after on its own host'
const COPY_HINT = 'run it there; files come into a sandbox from anywhere with: kosa8 cp ./dir NAME:/workspace'

const LOCAL_CALLS: { [Name in MethodName]?: string } = {
  stay: OPERATION,
  stop: OPERATION,
  listen: OPERATION,
  startRun: 'a run reads the repository from the disk of the daemon\'s host, and leaves its results there',
  applyRun: 'it writes a branch into the repository on the daemon\'s host',
  reportUsage: 'workers are on the daemon\'s host',
}

/** @throws LOCAL_ONLY for a call that a client on another host cannot make */
export function refuseRemoteCall(name: MethodName, body: unknown): void {
  const hasRepository = name === 'createSandbox' && (body as BodyOf<'createSandbox'> | undefined)?.repository !== undefined
  const reason = hasRepository ? 'the repository is read from the disk of the daemon\'s host' : LOCAL_CALLS[name]
  if (reason === undefined) return
  throw new Kosa8Error('LOCAL_ONLY', `this is not done over TCP: ${reason}`, { hint: reason === OPERATION ? 'run it there, without KOSA8_URL' : COPY_HINT })
}
