/**
 * The base class of every error kosa8 raises, and its form on the wire.
 *
 * Owns: the class, the cross-realm type check, serialising and rebuilding. Used by every layer;
 * errors that are not a Kosa8Error are bugs of ours and reach the user as code INTERNAL.
 */
import { ERROR_CODES, type ErrorCode } from './codes.js'

const marker = Symbol.for('kosa8.error')

/** What surrounds an error: the next step for the user, plain data, and the error beneath it. */
export interface Kosa8ErrorContext {
  /** One sentence: what to do next. Printed as the second line. */
  hint?: string | undefined
  /** Plain JSON data for programs. */
  details?: Record<string, unknown> | undefined
  cause?: unknown
}

/** An error as it crosses the wire or is stored in a result document. */
export interface ErrorRecord {
  code: ErrorCode
  message: string
  hint?: string | undefined
  details?: Record<string, unknown> | undefined
}

/** A failure with a stable code; `message` says what happened and where, `hint` what to do next. */
export class Kosa8Error extends Error {
  readonly code: ErrorCode
  readonly hint: string | undefined
  readonly details: Record<string, unknown>
  readonly [marker] = true

  constructor(code: ErrorCode, message: string, context: Kosa8ErrorContext = {}) {
    super(message, context.cause === undefined ? undefined : { cause: context.cause })
    this.name = 'Kosa8Error'
    this.code = code
    this.hint = context.hint
    this.details = context.details ?? {}
  }

  /** Exit status a command ends with when this error ends it. */
  get exitStatus(): number {
    return ERROR_CODES[this.code]
  }

  /** True for a Kosa8Error of any copy of this package. */
  static isInstance(value: unknown): value is Kosa8Error {
    return typeof value === 'object' && value !== null && marker in value
  }
}

/** Wraps whatever was thrown: a Kosa8Error stays itself, everything else becomes INTERNAL. */
export function toKosa8Error(thrown: unknown): Kosa8Error {
  if (Kosa8Error.isInstance(thrown)) return thrown
  const message = thrown instanceof Error ? thrown.message : String(thrown)
  if (isDiskFull(thrown)) {
    return new Kosa8Error('DISK_FULL', `no space left on the device: ${message}`, {
      hint: 'free some disk space and run the command again',
      cause: thrown,
    })
  }
  return new Kosa8Error('INTERNAL', message, { cause: thrown })
}

function isDiskFull(thrown: unknown): boolean {
  const code = (thrown as { code?: unknown } | null)?.code
  return code === 'ENOSPC' || code === 'EDQUOT'
}

/** Plain-data form of an error, for the wire and for result documents. */
export function serialiseError(thrown: unknown): ErrorRecord {
  const error = toKosa8Error(thrown)
  const record: ErrorRecord = { code: error.code, message: error.message }
  if (error.hint !== undefined) record.hint = error.hint
  if (Object.keys(error.details).length > 0) record.details = error.details
  return record
}

/** Rebuilds an error that crossed the wire; an unknown code becomes INTERNAL. */
export function parseError(record: unknown): Kosa8Error {
  const { code, message, hint, details } = (record ?? {}) as Partial<ErrorRecord>
  const known = typeof code === 'string' && code in ERROR_CODES ? code : 'INTERNAL'
  return new Kosa8Error(known, typeof message === 'string' ? message : 'unknown error', { hint, details })
}
