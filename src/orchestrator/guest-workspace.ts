/**
 * The repository in a guest, as the git layer wants to see it.
 *
 * Owns: the two fixed places in every guest and the translation from git's small `Workspace`
 * contract to commands of a guest session.
 */
import { Readable, type Writable } from 'node:stream'
import { finished } from 'node:stream/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { Workspace } from '../git/workspace.js'
import { runInGuest } from '../guest/run-in-guest.js'
import type { GuestExit, GuestSession } from '../guest/session.js'

/** Where the repository lies in every guest. */
export const WORKSPACE_PATH = '/workspace'
/** Where kosa8 keeps its own things in a guest. */
export const GUEST_STATE_PATH = '/var/lib/kosa8'

/** Git in a large repository under emulation is slow; longer than this means it hangs. */
const GIT_TIMEOUT_MS = 30 * 60_000
/** A program whose output has been read, or is not wanted any more, gets this long to end, milliseconds. */
const END_GRACE_MS = 10_000
const GIT_OUTPUT_BYTES_MAX = 64 * 1024 * 1024

/** Exit status as shells count it: 128 + n when signal n ended the process. */
export function exitStatusOf(exit: GuestExit): number {
  return exit.code ?? 128 + (exit.signal ?? 0)
}

/** Makes the git layer's view of a guest. */
export function createGuestWorkspace(session: GuestSession): Workspace {
  return {
    path: WORKSPACE_PATH,
    stateDirectory: GUEST_STATE_PATH,
    async run(argv, options = {}) {
      const result = await runInGuest(session, { argv, cwd: options.cwd ?? WORKSPACE_PATH, env: options.env }, {
        stdin: options.stdin,
        outputBytesMax: options.stdoutBytesMax ?? GIT_OUTPUT_BYTES_MAX,
        timeoutMs: options.timeoutMs ?? GIT_TIMEOUT_MS,
        signal: options.signal,
        onOutput: (chunk, stream) => stream === 'stderr' && options.onStderr?.(chunk),
      })
      if (result.timedOut) throw new Kosa8Error('TIMED_OUT', `${argv[0]} in the guest did not end in time`)
      if (result.truncated) throw new Kosa8Error('LIMIT_EXCEEDED', `${argv[0]} in the guest printed too much`)
      return { exitCode: exitStatusOf(result.exit), stdout: result.stdout, stderr: result.stderr }
    },
    async stream(argv, options = {}) {
      const child = await session.exec({
        argv, cwd: options.cwd ?? WORKSPACE_PATH, env: options.env, stdin: options.stdin !== undefined,
      })
      if (child.stdin !== null) feed(child.stdin, options.stdin)
      const stderr = collectText(child.stderr)
      const ended = child.exited.then(async (exit) => ({ exitCode: exitStatusOf(exit), stderr: await stderr }))
      // Closed only once everything was read: what the command printed last must not be cut off. A program that
      // has said all is still on its way out: killed then, its status would be that of a failure.
      void finished(child.stdout).catch(() => undefined)
        .then(() => Promise.race([child.exited, delay(END_GRACE_MS, undefined, { ref: false })]))
        .finally(() => child.close()).catch(() => undefined)
      options.signal?.addEventListener('abort', () => void child.close().catch(() => undefined), { once: true })
      return { stdout: child.stdout, ended }
    },
  }
}

/** A program may end before it has read everything: its status tells the rest. */
function feed(stdin: Writable, input: Readable | Uint8Array | string | undefined): void {
  stdin.on('error', () => undefined)
  if (input instanceof Readable) input.pipe(stdin)
  else stdin.end(input)
}

async function collectText(stream: AsyncIterable<Buffer>): Promise<string> {
  let text = ''
  for await (const chunk of stream) text = (text + chunk.toString('utf8')).slice(-16_384)
  return text
}
