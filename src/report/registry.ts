/**
 * Reporters by the name of their format. The only place that knows them all.
 */
import type { RunDocument } from '../model/run.js'
import { renderCtrf } from './ctrf.js'
import { renderHtml } from './html.js'
import { renderJson } from './json.js'
import { renderJunit } from './junit.js'
import { renderMarkdown } from './markdown.js'
import type { Reporter, ReportOptions } from './reporter.js'
import { renderText } from './text.js'

const REPORTERS = {
  text: renderText, md: renderMarkdown, html: renderHtml, json: renderJson, junit: renderJunit, ctrf: renderCtrf,
} satisfies Record<string, Reporter>

/** A format a run can be reported in. */
export type ReportFormat = keyof typeof REPORTERS

/** Every format, in the order they are offered. */
export const reportFormats = Object.keys(REPORTERS) as ReportFormat[]

export function isReportFormat(name: string): name is ReportFormat {
  return Object.hasOwn(REPORTERS, name)
}

/** Renders a run document. Pure; the text ends in a line end. */
export function renderReport(format: ReportFormat, document: RunDocument, options: ReportOptions = {}): string {
  const reporter: Reporter = REPORTERS[format]
  return reporter(document, options)
}
