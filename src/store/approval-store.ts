/**
 * Requests for approvals on disk, with what was decided and whether it was used.
 *
 * Written by the daemon only; a use is on disk before the act it is for begins.
 */
import { z } from 'zod'
import { approvalRequestSchema } from '../model/approval.js'
import type { Paths } from './paths.js'
import { RecordFolder } from './records.js'

/** One request. */
export const approvalRecordSchema = approvalRequestSchema.extend({
  decision: z.discriminatedUnion('kind', [
    z.object({ kind: z.literal('approved'), at: z.string(), until: z.string(), signature: z.string() }),
    z.object({ kind: z.literal('denied'), at: z.string() }),
  ]).nullable(),
  /** `begun` and nobody there who does it: the daemon ended in between. `failed`: it may be tried again. */
  use: z.object({ startedAt: z.string(), state: z.enum(['begun', 'done', 'failed']) }).nullable(),
})
export type ApprovalRecord = z.infer<typeof approvalRecordSchema>

/** Records of approvals, `approvals/<id>.json`. */
export class ApprovalStore extends RecordFolder<ApprovalRecord> {
  constructor(paths: Paths) {
    super(paths.approvals, approvalRecordSchema)
  }
}
