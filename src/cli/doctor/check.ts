/** One finding of `kosa8 doctor`. Types only. */

export type CheckState = 'ok' | 'warning' | 'problem'

/** What was looked at and found. */
export interface Check {
  name: string
  /** `problem`: something will not work; `warning`: it works, but less well. */
  state: CheckState
  message: string
  /** What to do about it; null when all is well. */
  cure: string | null
}

/** A finding without a need to act. */
export function fine(name: string, message: string): Check {
  return { name, state: 'ok', message, cure: null }
}
