/**
 * The calls that need an approval where a sandbox was made with approvals, and what an approval is bound to.
 *
 * Owns: that one table. The server asks the approval book before such a call, the OpenAPI document gives it its
 * header, and the client lets it carry one.
 */
import type { GuardedAction } from '../model/approval.js'
import type { BodyOf, MethodName, ParamsOf } from './methods.js'

/** One guarded call: the action, and what it is done to. */
interface Guard<Name extends MethodName> {
  action: GuardedAction
  /** Part of what is signed; the name of the sandbox is one anyway. */
  targetOf: (call: { params: ParamsOf<Name>; body: BodyOf<Name> }) => string | null
}

export const GUARDED_CALLS = {
  restoreSnapshot: { action: 'rewind', targetOf: ({ body }) => body.snapshot },
  deleteSandbox: { action: 'delete', targetOf: () => null },
  setEgress: { action: 'egress', targetOf: ({ body }) => body.egress },
  deleteSnapshot: { action: 'delete-checkpoint', targetOf: ({ params }) => params.id },
} satisfies { [Name in MethodName]?: Guard<Name> }

export type GuardedName = keyof typeof GUARDED_CALLS

/** What a call would do that needs an approval; null for every other call. */
export function guardedActOf(name: MethodName, params: unknown, body: unknown): GuardedAct | null {
  if (!(name in GUARDED_CALLS)) return null
  const { action, targetOf } = GUARDED_CALLS[name as GuardedName] as Guard<GuardedName>
  const target = targetOf({ params, body } as Parameters<typeof targetOf>[0])
  return { sandbox: (params as { name: string }).name, action, target }
}

/** A guarded action, done to this sandbox. */
export interface GuardedAct {
  sandbox: string
  action: GuardedAction
  target: string | null
}
