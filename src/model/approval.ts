/**
 * Approvals as plain data: what a person is asked to allow, and the text that is signed when they do.
 *
 * Owns: the actions, the form of a request, the signed text, bounds. Which calls need one is in
 * `protocol/guarded-calls.ts`; the daemon's approval book keeps and checks them.
 *
 *   waiting ── approved ── used
 *      └───────── denied ──┘ (an approved one can be taken back until it is used)
 */
import { z } from 'zod'
import { sandboxNameSchema } from './ids.js'

/** How long an approval may be used, by default and at most, milliseconds from when it is given. */
export const APPROVAL_MS_DEFAULT = 10 * 60_000
export const APPROVAL_MS_MAX = 60 * 60_000
/** How long a request is kept from when it was made or decided, milliseconds. */
export const REQUEST_MS_MAX = 24 * 3600_000

/** What a sandbox with approvals does not do by itself. */
export const guardedActionSchema = z.enum(['rewind', 'delete', 'delete-checkpoint', 'egress'])
export type GuardedAction = z.infer<typeof guardedActionSchema>

/** Eight random bytes; also what the approval is called once it is given. */
export const approvalIdSchema = z.string().regex(/^[0-9a-f]{16}$/, 'not the id of an approval')

/** One line without blanks: it is a line of the signed text. */
const targetSchema = z.string().regex(/^[\x21-\x7e]{1,4096}$/, 'must be one line without blanks')

/** What a person is asked for. Everything but the facts at the end is signed. */
export const approvalRequestSchema = z.object({
  id: approvalIdSchema,
  sandbox: sandboxNameSchema,
  /** Tells a sandbox from an earlier one of its name. */
  sandboxCreatedAt: z.string(),
  action: guardedActionSchema,
  /** Checkpoint of `rewind` and `delete-checkpoint`, rule of `egress`; null for `delete`. */
  target: targetSchema.nullable(),
  askedAt: z.string(),
  /** When the checkpoint was taken, and its label, which is whatever its taker wrote. */
  targetCreatedAt: z.string().nullable(),
  label: z.string().nullable(),
  /** Checkpoints that are lost with it. */
  lost: z.array(z.string()),
})
export type ApprovalRequest = z.infer<typeof approvalRequestSchema>

export const approvalStateSchema = z.enum(['waiting', 'approved', 'denied', 'used'])
export type ApprovalState = z.infer<typeof approvalStateSchema>

/**
 * The text that is signed: these lines in this order, each with its line feed, UTF-8.
 * @param until ISO 8601 instant after which it may not be used
 */
export function approvalText(request: Omit<ApprovalRequest, 'askedAt' | 'targetCreatedAt' | 'label' | 'lost'>, until: string): string {
  const { id, sandbox, sandboxCreatedAt, action, target } = request
  return [
    'kosa8 approval 1', `id: ${id}`, `sandbox: ${sandbox}`, `created: ${sandboxCreatedAt}`, `action: ${action}`,
    `target: ${target ?? '-'}`, `until: ${until}`, '',
  ].join('\n')
}

/** The act in a few words. The label is quoted: it may say anything. */
export function nameAct({ sandbox, action, target, label }: Pick<ApprovalRequest, 'sandbox' | 'action' | 'target' | 'label'>): string {
  const checkpoint = `${target}${label === null ? '' : ` (${JSON.stringify(label)})`}`
  switch (action) {
    case 'rewind': return `rewind ${sandbox} to ${checkpoint}`
    case 'delete': return `remove ${sandbox}`
    case 'delete-checkpoint': return `remove checkpoint ${checkpoint} of ${sandbox}`
    case 'egress': return `change what ${sandbox} may reach to ${target}`
  }
}

/** The command line that does it. */
export function commandOf({ sandbox, action, target }: Pick<ApprovalRequest, 'sandbox' | 'action' | 'target'>): string {
  switch (action) {
    case 'rewind': return `kosa8 rewind ${sandbox} --to ${target}`
    case 'delete': return `kosa8 rm ${sandbox}`
    case 'delete-checkpoint': return `kosa8 checkpoint rm ${sandbox} ${target}`
    case 'egress': return `kosa8 egress ${sandbox} '${target}'`
  }
}
