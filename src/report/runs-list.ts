/** The list of runs for a terminal. */
import type { RunPhase } from '../model/run.js'
import { layOutTable } from './table.js'
import { makePathVisible, makeVisible } from './visible.js'

/** One run as the list shows it. */
export interface RunListEntry {
  id: string
  createdAt: string
  phase: RunPhase
  repository: string
  approaches: string[]
  winner: string | null
}

const COLOURS: Partial<Record<RunPhase, number>> = { completed: 32, failed: 31, cancelled: 33, interrupted: 33 }

/** A table with one line per run, in the order given. */
export function renderRunsList(
  runs: readonly RunListEntry[], options: { colour?: boolean; columns?: number } = {},
): string {
  if (runs.length === 0) return 'no runs yet\n'
  const head = ['run', 'started', 'state', 'winner', 'approaches', 'repository'].map((text) => ({ text }))
  const rows = runs.map((run) => [
    { text: makeVisible(run.id) },
    { text: makeVisible(run.createdAt.slice(0, 16).replace('T', ' ')) },
    { text: run.phase, ...(COLOURS[run.phase] === undefined ? {} : { colour: COLOURS[run.phase] }) },
    { text: makeVisible(run.winner ?? '–') },
    { text: makeVisible(run.approaches.join(', '), 60) },
    { text: makePathVisible(run.repository) },
  ])
  const { colour = false, columns = 120 } = options
  return `${layOutTable([head, ...rows], { columns, colour, right: [] }).join('\n')}\n`
}
