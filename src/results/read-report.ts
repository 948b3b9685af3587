/**
 * Finds out what a report is by its content, never by its name, and reads it.
 *
 * Owns: the order of formats, and when standard output counts as a report: only if it is machine-readable as a
 * whole, since test output made for people has fooled every reader that guessed.
 */
import { isCtrfDocument, parseCtrf } from './ctrf.js'
import { isGoJson, parseGoJson } from './go-json.js'
import { isJestDocument, parseJest } from './jest-json.js'
import { parseJsonObject } from './json-text.js'
import { isJunit, parseJunit } from './junit.js'
import { ReportCollector, type ReportParts } from './report-parts.js'
import { isTap, parseTap } from './tap.js'
import { decodeText } from './text.js'

/** Longest report read, in bytes. */
export const REPORT_BYTES_MAX = 64 * 1024 * 1024

/** Reads one report file. An unknown format is a fault of its own; `empty` when there is no document at all. */
export function readReport(content: Uint8Array, workspace: string): ReportParts | 'empty' {
  if (content.length > REPORT_BYTES_MAX) return faulty(`report refused: larger than ${REPORT_BYTES_MAX} bytes`)
  const text = decodeText(content)
  if (isWithoutDocument(text.trimStart())) return 'empty'
  if (isJunit(text)) return parseJunit(text)
  if (/^\s*\{/.test(text) && !isGoJson(text)) return readJson(text, workspace)
  return readStream(text) ?? faulty('report in no known format')
}

function isWithoutDocument(body: string): boolean {
  return body === '' || /^<\?xml[^>]{0,200}\?>\s*$/.test(body)
}

/** Reads standard output if it is a report as a whole; null if it is not. */
export function readStandardOutput(content: Uint8Array, workspace: string): ReportParts | null {
  if (content.length > REPORT_BYTES_MAX) return null
  const text = decodeText(content)
  // What npm, pnpm and yarn print before they run a script.
  const body = text.replace(/^(?:\s*\n|[>$] [^\n]*\n|yarn run [^\n]*\n)+/, '')
  if (body.startsWith('{') && !isGoJson(text)) {
    const document = parseJsonObject(body)
    return document === null ? null : readDocument(document, workspace)
  }
  return readStream(text)
}

function readStream(text: string): ReportParts | null {
  if (isGoJson(text)) return parseGoJson(text)
  return isTap(text) ? parseTap(text) : null
}

function readJson(text: string, workspace: string): ReportParts {
  const document = parseJsonObject(text)
  if (document === null) return faulty('report cut off')
  return readDocument(document, workspace) ?? faulty('report in no known format')
}

function readDocument(document: Record<string, unknown>, workspace: string): ReportParts | null {
  if (isJestDocument(document)) return parseJest(document, workspace)
  return isCtrfDocument(document) ? parseCtrf(document, workspace) : null
}

function faulty(text: string): ReportParts {
  const collector = new ReportCollector()
  collector.addFault(text)
  return collector.parts
}
