/** Errors on their way out: the HTTP status and the one form `{error: {code, message, hint, details}}`. */
import type { FastifyReply } from 'fastify'
import type { ErrorCode } from '../../errors/codes.js'
import { Kosa8Error, serialiseError, toKosa8Error, type ErrorRecord } from '../../errors/kosa8-error.js'

/** Body of every answer that is not a success. */
export interface ErrorBody {
  error: ErrorRecord
}

/** Answers with an error; whatever was thrown becomes a record with a code. */
export function sendError(reply: FastifyReply, thrown: unknown): FastifyReply {
  const error = fromFastify(thrown)
  return reply.code(httpStatusOf(error)).send({ error: serialiseError(error) } satisfies ErrorBody)
}

/** HTTP status of an error; programs go by the code in the body. */
export function httpStatusOf(error: Kosa8Error): number {
  if (error.code.endsWith('_UNKNOWN')) return 404
  if (error.code.startsWith('APPROVAL_') || error.code === 'LOCAL_ONLY') return 403
  if (CONFLICTS.has(error.code)) return 409
  if (error.exitStatus === 2) return 400
  if (error.exitStatus === 130) return 499
  return UNAVAILABLE.has(error.code) ? 503 : 500
}

const CONFLICTS = new Set<ErrorCode>(['SANDBOX_EXISTS', 'RUN_ACTIVE', 'IMAGE_IN_USE', 'APPLY_CONFLICT', 'REPOSITORY_DIRTY'])
const UNAVAILABLE = new Set<ErrorCode>(['MEMORY_INSUFFICIENT', 'QUEUE_UNREACHABLE', 'DISK_FULL', 'PREEMPTED'])

/** Fastify refuses bodies itself: too large, not JSON, wrong media type. Those are the caller's fault. */
function fromFastify(thrown: unknown): Kosa8Error {
  if (Kosa8Error.isInstance(thrown)) return thrown
  const { statusCode, message } = thrown as { statusCode?: unknown; message?: unknown }
  if (typeof statusCode === 'number' && statusCode >= 400 && statusCode < 500) {
    return new Kosa8Error('USAGE', `the daemon refused the request: ${String(message)}`)
  }
  return toKosa8Error(thrown)
}
