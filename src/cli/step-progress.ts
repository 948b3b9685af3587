/**
 * Progress of work that goes step by step: on a terminal one line with a clock that is drawn anew, else a plain
 * line for each step.
 */
import { makeVisible } from '../report/visible.js'
import type { CliHost } from './host.js'
import { LiveLines, tellSeconds } from './live-lines.js'

/** Time between two drawings that only move the clock, milliseconds. */
const TICK_MS = 1000

/** Shows the steps of `work` on standard error until it settles, and settles like it. */
export async function withSteps<T>(host: CliHost, first: string, work: (onStep: (step: string) => void) => Promise<T>): Promise<T> {
  if (!host.terminals.stderr || host.settings.isCi) return work((step) => host.stderr.write(`${makeVisible(step)}\n`))
  const lines = new LiveLines(host)
  const startedAt = performance.now()
  let shown = first
  const draw = (): void => lines.draw([`${shown}  (${tellSeconds(startedAt)})`])
  const timer = setInterval(draw, TICK_MS)
  draw()
  try {
    return await work((step) => {
      shown = step
      draw()
    })
  } finally {
    clearInterval(timer)
    lines.erase()
  }
}
