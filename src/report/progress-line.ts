/** One plain line per event of a run, for output that is no terminal. */
import type { RunEvent } from '../model/run.js'
import { makeVisible } from './visible.js'

/** The line without its line end; null for events that are not worth one (output of trials). */
export function renderProgressLine(event: RunEvent): string | null {
  if (event.type === 'trial-output') return null
  const time = /T(\d\d:\d\d:\d\d)/.exec(event.at)?.[1] ?? makeVisible(event.at)
  return `${time} ${tellEvent(event)}`
}

function tellEvent(event: Exclude<RunEvent, { type: 'trial-output' }>): string {
  if (event.type === 'run-phase') return join(event.phase, event.message)
  if (event.type === 'run-end') return `run ${event.phase}`
  const trial = `${makeVisible(event.label)} #${event.repeat}`
  if (event.type === 'trial-phase') return `${trial}: ${join(event.phase, event.message)}`
  return `${trial}: ${join(event.state, event.summary)}`
}

function join(word: string, message: string): string {
  return message === '' || message === word ? word : `${word}: ${makeVisible(message)}`
}
