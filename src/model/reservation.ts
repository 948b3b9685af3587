/**
 * A reservation: memory of this host set aside for a machine before it starts.
 *
 * Owns: its form. The ledger of `admission` grants and releases it, the store keeps it.
 */
import { z } from 'zod'
import type { ReservationId } from './ids.js'

export const reservationSchema = z.object({
  id: z.string().transform((id) => id as ReservationId),
  /** Bytes of host memory nobody else may be promised. */
  bytes: z.number().int().nonnegative(),
  /** For whom, in words of the user: "sandbox box", "trial a/1 of r2026…". */
  holder: z.string(),
  kind: z.enum(['sandbox', 'trial']),
  /** The process that asked; when it is gone, so is the claim, unless another one took it over. */
  owner: z.object({ pid: z.number().int().positive(), startTicks: z.number().int().nonnegative() }),
  createdAt: z.string(),
})
export type Reservation = z.infer<typeof reservationSchema>
