/** The exit status a run leads to. Pure. */
import { ERROR_CODES, type ErrorCode } from '../errors/codes.js'
import type { RunDocument } from '../model/run.js'

/** What kept us from finding out. */
const INFRASTRUCTURE = 3

/**
 * 0 completed and every trial scored as far as it depends on us; 1 a winner was asked for and there is none;
 * 2 or 3 by the run's error; 3 some trial could not be tried; 130 cancelled or interrupted.
 */
export function exitStatusOf(document: RunDocument, { requirePass }: { requirePass: boolean }): number {
  if (document.state === 'cancelled' || document.state === 'interrupted') return ERROR_CODES.INTERRUPTED
  if (document.state === 'failed') return statusOfCode(document.error?.code)
  const hasError = document.trials.some(({ state }) => state === 'error') || (document.baseline?.error ?? null) !== null
  if (hasError) return INFRASTRUCTURE
  return requirePass && document.winner === null ? 1 : 0
}

function statusOfCode(code: string | undefined): number {
  return code !== undefined && Object.hasOwn(ERROR_CODES, code) ? ERROR_CODES[code as ErrorCode] : INFRASTRUCTURE
}
