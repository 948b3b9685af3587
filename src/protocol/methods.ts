/**
 * The method table: every JSON call between a client and the daemon, with its schemas.
 *
 * Owns: verb, path, and the schemas of parameters, body and answer. `daemon/server` registers a route per
 * entry, `sdk` calls them by name. Streams (exec, files, events, reservations) are in `streams.ts`.
 */
import { z } from 'zod'
import { sandboxNameSchema } from '../model/ids.js'
import * as approvals from './approvals.js'
import * as reservations from './reservations.js'
import * as runs from './runs.js'
import * as sandboxes from './sandboxes.js'
import * as status from './status.js'

/** One call. `params` are the `:names` of the path. */
export interface MethodShape {
  verb: 'GET' | 'POST' | 'DELETE'
  path: string
  params: z.ZodType
  body: z.ZodType
  response: z.ZodType
}

const none = z.strictObject({})
const done = z.object({ ok: z.literal(true) })
const sandboxParams = z.strictObject({ name: sandboxNameSchema })
const snapshotParams = z.strictObject({ name: sandboxNameSchema, id: sandboxes.snapshotIdSchema })
const imageParams = z.strictObject({ name: sandboxes.imageNameSchema })
const runParams = z.strictObject({ id: runs.runIdSchema })
const reservationParams = z.strictObject({ id: z.string().min(1).max(100) })

export const METHODS = {
  status: { verb: 'GET', path: '/v1/status', params: none, body: none, response: status.daemonStatusSchema },
  stay: { verb: 'POST', path: '/v1/stay', params: none, body: none, response: done },
  listen: { verb: 'POST', path: '/v1/listen', params: none, body: status.listenSchema, response: status.listeningSchema },
  stop: { verb: 'POST', path: '/v1/stop', params: none, body: none, response: done },

  createSandbox: { verb: 'POST', path: '/v1/sandboxes', params: none, body: sandboxes.createSandboxSchema, response: sandboxes.sandboxSchema },
  listSandboxes: { verb: 'GET', path: '/v1/sandboxes', params: none, body: none, response: z.array(sandboxes.sandboxSchema) },
  getSandbox: { verb: 'GET', path: '/v1/sandboxes/:name', params: sandboxParams, body: none, response: sandboxes.sandboxSchema },
  deleteSandbox: { verb: 'DELETE', path: '/v1/sandboxes/:name', params: sandboxParams, body: none, response: done },

  setEgress: { verb: 'POST', path: '/v1/sandboxes/:name/egress', params: sandboxParams, body: sandboxes.setEgressSchema, response: sandboxes.sandboxSchema },

  forkSandbox: { verb: 'POST', path: '/v1/sandboxes/:name/fork', params: sandboxParams, body: sandboxes.forkSandboxSchema, response: z.array(sandboxes.forkedSandboxSchema) },

  createSnapshot: { verb: 'POST', path: '/v1/sandboxes/:name/snapshots', params: sandboxParams, body: sandboxes.createSnapshotSchema, response: sandboxes.snapshotSchema },
  listSnapshots: { verb: 'GET', path: '/v1/sandboxes/:name/snapshots', params: sandboxParams, body: none, response: z.array(sandboxes.snapshotSchema) },
  deleteSnapshot: { verb: 'DELETE', path: '/v1/sandboxes/:name/snapshots/:id', params: snapshotParams, body: none, response: done },
  restoreSnapshot: { verb: 'POST', path: '/v1/sandboxes/:name/restore', params: sandboxParams, body: sandboxes.restoreSchema, response: sandboxes.restoredSchema },

  listApprovals: { verb: 'GET', path: '/v1/approvals', params: none, body: none, response: z.array(approvals.approvalSchema) },
  getApproval: { verb: 'GET', path: '/v1/approvals/:id', params: approvals.approvalParamsSchema, body: none, response: approvals.approvalSchema },
  approve: { verb: 'POST', path: '/v1/approvals/:id/approve', params: approvals.approvalParamsSchema, body: approvals.approveSchema, response: approvals.approvalSchema },
  deny: { verb: 'POST', path: '/v1/approvals/:id/deny', params: approvals.approvalParamsSchema, body: none, response: approvals.approvalSchema },

  listImages: { verb: 'GET', path: '/v1/images', params: none, body: none, response: z.array(sandboxes.imageSchema) },
  deleteImage: { verb: 'DELETE', path: '/v1/images/:name', params: imageParams, body: none, response: done },
  deleteOldImages: { verb: 'DELETE', path: '/v1/images/:name/old', params: imageParams, body: none, response: sandboxes.removedImagesSchema },

  startRun: { verb: 'POST', path: '/v1/runs', params: none, body: runs.runRequestSchema, response: runs.runStartedSchema },
  listRuns: { verb: 'GET', path: '/v1/runs', params: none, body: none, response: z.array(runs.runSummarySchema) },
  getRun: { verb: 'GET', path: '/v1/runs/:id', params: runParams, body: none, response: runs.runStatusSchema },
  deleteRun: { verb: 'DELETE', path: '/v1/runs/:id', params: runParams, body: none, response: done },
  cancelRun: { verb: 'POST', path: '/v1/runs/:id/cancel', params: runParams, body: runs.cancelRunSchema, response: done },
  applyRun: { verb: 'POST', path: '/v1/runs/:id/apply', params: runParams, body: runs.applyRunSchema, response: runs.appliedSchema },

  reportUsage: { verb: 'POST', path: '/v1/reservations/:id/usage', params: reservationParams, body: reservations.reservationUsageSchema, response: reservations.reservationSizeSchema },
} as const satisfies Record<string, MethodShape>

export type MethodName = keyof typeof METHODS
export type ParamsOf<Name extends MethodName> = z.infer<(typeof METHODS)[Name]['params']>
export type BodyOf<Name extends MethodName> = z.infer<(typeof METHODS)[Name]['body']>
export type ResponseOf<Name extends MethodName> = z.infer<(typeof METHODS)[Name]['response']>

/** Fills the `:names` of a path; values are percent-encoded. */
export function fillPath(path: string, params: Record<string, string>): string {
  return path.replace(/:([a-z]+)/g, (_match, name: string) => encodeURIComponent(params[name] ?? ''))
}
