/**
 * One route per entry of the method table: validate, call the service, answer.
 *
 * Owns: which service call stands behind which method, and that guarded ones pass the approval book first. A new
 * method needs an entry here or nothing compiles.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { approvalIdSchema } from '../../model/approval.js'
import { APPROVAL_HEADER } from '../../protocol/approvals.js'
import { guardedActOf } from '../../protocol/guarded-calls.js'
import { refuseRemoteCall } from '../../protocol/local-calls.js'
import {
  METHODS, type BodyOf, type MethodName, type ParamsOf, type ResponseOf,
} from '../../protocol/methods.js'
import type { Services } from '../services.js'
import { validate } from './validation.js'

/** A call after validation; `signal` is aborted when the caller has gone. */
interface Call<Name extends MethodName> {
  params: ParamsOf<Name>
  body: BodyOf<Name>
  signal: AbortSignal
}
type Handlers = { [Name in MethodName]: (call: Call<Name>) => Promise<ResponseOf<Name>> }

const DONE = { ok: true } as const

/** Registers every method of the table. @param isRemote refuse those that are for this host only */
export function registerMethodRoutes(app: FastifyInstance, services: Services, { isRemote }: { isRemote: boolean }): void {
  const handlers = bindHandlers(services)
  for (const name of Object.keys(METHODS) as MethodName[]) {
    const method = METHODS[name]
    const handler = handlers[name] as (call: { params: unknown; body: unknown; signal: AbortSignal }) => Promise<unknown>
    app.route({
      method: method.verb,
      url: method.path,
      handler: async (request, reply) => {
        validate(METHODS.status.params, request.query, 'query')
        const params: unknown = validate(method.params, request.params, 'path')
        const body: unknown = validate(method.body, request.body ?? {}, 'request')
        if (isRemote) refuseRemoteCall(name, body)
        const act = guardedActOf(name, params, body)
        const perform = (): Promise<unknown> => handler({ params, body, signal: signalOfCaller(request, reply) })
        return reply.send(act === null ? await perform() : await services.approvals.guard(act, approvalIn(request), perform))
      },
    })
  }
}

/** Aborted when the caller's connection closes before the answer is out. */
export function signalOfCaller(request: FastifyRequest, reply: FastifyReply): AbortSignal {
  const gone = new AbortController()
  reply.raw.once('close', () => {
    if (!reply.raw.writableFinished) gone.abort()
  })
  if (request.raw.socket.destroyed) gone.abort()
  return gone.signal
}

/** Id of the approval a call came with. */
function approvalIn(request: FastifyRequest): string | null {
  const value = request.headers[APPROVAL_HEADER]
  return value === undefined ? null : validate(approvalIdSchema, value, 'approval')
}

function bindHandlers({ daemon, sandboxes, runs, reservations, approvals }: Services): Handlers {
  return {
    status: async () => daemon.status(),
    stay: async () => { await daemon.stay(); return DONE },
    listen: async ({ body }) => daemon.listen(body),
    stop: async () => { await daemon.stop(); return DONE },

    createSandbox: async ({ body, signal }) => sandboxes.create(body, signal),
    listSandboxes: async () => sandboxes.list(),
    getSandbox: async ({ params }) => sandboxes.get(params.name),
    deleteSandbox: async ({ params }) => { await sandboxes.delete(params.name); return DONE },

    setEgress: async ({ params, body }) => sandboxes.setEgress(params.name, body.egress),

    forkSandbox: async ({ params, body }) => sandboxes.fork(params.name, body.names),

    createSnapshot: async ({ params, body }) => sandboxes.snapshot(params.name, body),
    listSnapshots: async ({ params }) => sandboxes.snapshots(params.name),
    deleteSnapshot: async ({ params }) => { await sandboxes.deleteSnapshot(params.name, params.id); return DONE },
    restoreSnapshot: async ({ params, body }) => sandboxes.restore(params.name, body.snapshot),

    listApprovals: async () => approvals.list(),
    getApproval: async ({ params }) => approvals.get(params.id),
    approve: async ({ params, body }) => approvals.approve(params.id, body),
    deny: async ({ params }) => approvals.deny(params.id),

    listImages: async () => daemon.images(),
    deleteImage: async ({ params }) => { await daemon.deleteImage(params.name); return DONE },
    deleteOldImages: async ({ params }) => daemon.deleteOldImages(params.name),

    startRun: async ({ body }) => runs.start(body),
    listRuns: async () => runs.list(),
    getRun: async ({ params }) => runs.get(params.id),
    deleteRun: async ({ params }) => { await runs.remove(params.id); return DONE },
    cancelRun: async ({ params, body }) => { await runs.cancel(params.id, body); return DONE },
    applyRun: async ({ params, body }) => runs.apply(params.id, body),

    reportUsage: async ({ params, body }) => reservations.reportUsage(params.id, body),
  }
}
