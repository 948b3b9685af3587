/**
 * The daemon about itself, and the version handshake.
 *
 * Rule: client and daemon of one host are of one version. A client reads the handshake fields first,
 * which never change their form, and the rest only from a daemon of its own version.
 */
import { z } from 'zod'
import { readPackageVersion } from '../util/package-root.js'

/** Version of this package; both ends compare it. */
export const VERSION = readPackageVersion()

/** The part of the status that every version of the daemon answers alike. */
export const handshakeSchema = z.object({
  version: z.string(),
  pid: z.number(),
  /** What a replacement of the daemon would disturb. */
  running: z.object({ sandboxes: z.number(), runs: z.number() }),
})
export type Handshake = z.infer<typeof handshakeSchema>

export const daemonStatusSchema = handshakeSchema.extend({
  home: z.string(),
  startedAt: z.string(),
  /** What machines run with, and why; null until the probe has been made. */
  accelerator: z.object({ name: z.string(), reason: z.string() }).nullable(),
  budget: z.object({ totalBytes: z.number(), reservedBytes: z.number(), freeBytes: z.number() }),
  reservations: z.array(z.object({ id: z.string(), owner: z.string(), bytes: z.number() })),
  waiting: z.array(z.object({ owner: z.string(), message: z.string() })),
})
export type DaemonStatus = z.infer<typeof daemonStatusSchema>
