/**
 * What crosses the wire about approvals.
 *
 * Owns: how a request is shown, how a decision is handed in, and the header a guarded call carries its approval in.
 */
import { z } from 'zod'
import { approvalIdSchema, approvalRequestSchema, approvalStateSchema } from '../model/approval.js'

/** Header of a guarded call: the id of its approval. */
export const APPROVAL_HEADER = 'kosa8-approval'

export const approvalParamsSchema = z.strictObject({ id: approvalIdSchema })

/** A request and where it is. */
export const approvalSchema = approvalRequestSchema.extend({
  state: approvalStateSchema,
  /** Until when it may be used, ISO 8601; null while nobody has approved it. */
  until: z.string().nullable(),
  /** Fingerprint of the key that must sign. */
  key: z.string(),
})
export type ApprovalDescription = z.infer<typeof approvalSchema>

/** A signature of {@link approvalText} with this `until`. */
export const approveSchema = z.strictObject({
  until: z.iso.datetime(),
  /** Base64. */
  signature: z.base64().max(100),
  /** Fingerprint of the key it was made with: tells a wrong key from a changed text. */
  key: z.string().max(100),
})
export type ApproveRequest = z.infer<typeof approveSchema>

/** An Ed25519 public key in PEM form. */
export const publicKeySchema = z.string().max(2000).startsWith('-----BEGIN PUBLIC KEY-----', 'give a public key in PEM form')
