/** The document itself, as JSON whose text is safe to print to a terminal. */
import type { RunDocument } from '../model/run.js'
import { stringifyVisibly } from './visible.js'

export function renderJson(document: RunDocument): string {
  return `${stringifyVisibly(document)}\n`
}
