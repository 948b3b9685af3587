/**
 * Takes runs whose trials have all ended and concludes them.
 *
 * Owns: the claim of the compare job and that a run is concluded once. The document itself is built by
 * `run-conclusion.ts`.
 */
import { toKosa8Error } from '../errors/kosa8-error.js'
import type { ClaimedCompare, RunQueue } from '../queue/queue.js'
import { isFinalPhase } from '../store/run-store.js'
import { concludeRun, type ConclusionParts } from './run-conclusion.js'

/** What a compare worker works with. */
export interface CompareWorkerParts extends ConclusionParts {
  queue: RunQueue
  name: string
  onError: (message: string, error: unknown) => void
}

/** Compares runs until `signal` fires. */
export async function workOnCompares(parts: CompareWorkerParts, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      const claim = await parts.queue.claimCompare(parts.name)
      if (claim === null) await parts.queue.waitForWork(signal)
      else await compare(parts, claim)
    } catch (error) {
      if (signal.aborted) return
      parts.onError('taking a comparison failed', error)
      await parts.queue.waitForWork(signal)
    }
  }
}

async function compare(parts: CompareWorkerParts, claim: ClaimedCompare): Promise<void> {
  const { runs } = parts
  try {
    const cancelled = await runs.readCancelRequest(claim.run)
    // A cancelled run is concluded by the daemon, which knows whether it was cancelled or interrupted.
    if (cancelled === null && !isFinalPhase((await runs.readPhase(claim.run)).phase)) {
      await runs.setPhase(claim.run, 'comparing', 'all trials have ended')
      await concludeRun(parts, claim.run, { state: 'completed', message: 'every trial has ended', error: null })
    }
    await claim.finish()
  } catch (error) {
    parts.onError(`comparing ${claim.run} failed`, error)
    const code = toKosa8Error(error).code
    await claim.fail(toKosa8Error(error), { retry: code !== 'STORE_CORRUPT' && code !== 'RUN_UNKNOWN' })
  }
}
