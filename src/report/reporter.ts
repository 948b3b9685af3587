/**
 * The interface of a reporter: a pure function from a run document to one text.
 *
 * Reporters add no judgement: verdicts, ranking and reasons are the document's. Everything in a document that
 * came from the guest is hostile text, and each format makes it visible or escapes it (`visible.ts`).
 */
import type { RunDocument } from '../model/run.js'

/** What a rendering may use beside the document. */
export interface ReportOptions {
  /** Texts of patches by their path in the document (`diff.patch`); the HTML report shows them. */
  patches?: Record<string, string>
  /** Terminal colours in the text report. */
  colour?: boolean
  /** Width of the text report in columns; 100 by default. */
  columns?: number
}

export type Reporter = (document: RunDocument, options: ReportOptions) => string
