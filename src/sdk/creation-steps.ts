/**
 * What goes on while a sandbox is being made, for whoever waits for it.
 *
 * Owns: asking the daemon again and again until the call that makes it has ended. Called by `client.ts`.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { SandboxDescription } from '../protocol/sandboxes.js'

/** Steps take seconds; one more question of this kind costs the daemon a file. */
const ASK_EACH_MS = 300

/** How a call that makes a sandbox is followed and ended. */
export interface CreationOptions {
  /** Ends the making; nothing of the sandbox is left then. */
  signal?: AbortSignal
  /** Told each step that begins, in a line: "booting a machine (base, 1024 MiB)". */
  onStep?: (step: string) => void
}

/**
 * Tells the steps of a sandbox until `made` settles, and settles like it.
 * @param describe what the daemon says of the sandbox; its failures are passed over: the call itself tells them
 */
export async function tellSteps<T>(
  made: Promise<T>, describe: (signal: AbortSignal) => Promise<SandboxDescription>, onStep: (step: string) => void,
): Promise<T> {
  const over = new AbortController()
  void watch(describe, onStep, over.signal)
  return made.finally(() => over.abort())
}

async function watch(
  describe: (signal: AbortSignal) => Promise<SandboxDescription>, onStep: (step: string) => void, signal: AbortSignal,
): Promise<void> {
  let last: string | null = null
  while (!signal.aborted) {
    const step = await describe(signal).then((sandbox) => sandbox.step, () => null)
    if (step !== null && step !== last && !signal.aborted) onStep(step)
    last = step ?? last
    await delay(ASK_EACH_MS, undefined, { signal }).catch(() => undefined)
  }
}
