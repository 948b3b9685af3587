/**
 * How a worker asks the daemon for memory.
 *
 * A reservation is a connection held open: the daemon writes one JSON line per change, and whoever closes
 * the connection gives the memory back. So a worker that dies releases what it held.
 */
import { z } from 'zod'

/** What a trial's clone needs; `bytes` null: the daemon predicts. */
export const reservationRequestSchema = z.strictObject({
  run: z.string(),
  /** `<run>/<label>/<repeat>`. */
  trial: z.string(),
  label: z.string(),
  attempt: z.number().int().positive(),
  checkpoint: z.string(),
  memoryMib: z.number().int().positive(),
  bytes: z.number().int().positive().nullable(),
})
export type ReservationRequest = z.infer<typeof reservationRequestSchema>

/** One line of a held reservation. */
export const reservationLineSchema = z.discriminatedUnion('type', [
  /** Not yet; the message says what is missing, e.g. "needs 310 MiB, 120 MiB free". */
  z.object({ type: z.literal('waiting'), message: z.string() }),
  /** The memory is this connection's until it closes. */
  z.object({ type: z.literal('granted'), id: z.string(), bytes: z.number() }),
  /** Give it back soon: the trial goes to the queue again. */
  z.object({ type: z.literal('preempt'), message: z.string() }),
  /** The run was cancelled: stop the trial. */
  z.object({ type: z.literal('cancel'), message: z.string() }),
  /** It could not be granted, ever; the last line. */
  z.object({ type: z.literal('error'), error: z.looseObject({ code: z.string(), message: z.string() }) }),
])
export type ReservationLine = z.infer<typeof reservationLineSchema>

/** Measured use of a clone, bytes nobody else shares. */
export const reservationUsageSchema = z.strictObject({
  privateBytes: z.number().int().nonnegative(),
  peakPrivateBytes: z.number().int().nonnegative(),
})
export type ReservationUsage = z.infer<typeof reservationUsageSchema>

/** Size of the reservation after the report. */
export const reservationSizeSchema = z.object({ bytes: z.number() })
