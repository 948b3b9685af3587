/**
 * The daemon about itself, and the version handshake.
 *
 * Rule: client and daemon are of one version and one build of it. A client reads the handshake fields first,
 * which never change their form, and the rest only from a daemon of its own build.
 */
import { z } from 'zod'
import { readBuildStamp, readPackageVersion } from '../util/package-root.js'

/** Version of this package; both ends compare it. */
export const VERSION = readPackageVersion()

/** The build this process was started from; a package built anew while it runs does not change it. */
export const BUILD = readBuildStamp()

/** The part of the status that every version of the daemon answers alike. */
export const handshakeSchema = z.object({
  version: z.string(),
  /** Which build of that version; daemons that do not say are of an earlier one. */
  build: z.string().optional(),
  pid: z.number(),
  /** What a replacement of the daemon would disturb. */
  running: z.object({ sandboxes: z.number(), runs: z.number() }),
})
export type Handshake = z.infer<typeof handshakeSchema>

/** True for a daemon made of the same code as this process. */
export function isSameBuild({ version, build }: Pick<Handshake, 'version' | 'build'>): boolean {
  return version === VERSION && build === BUILD
}

/** A version as people are told it: with its build where that is what differs from ours. */
export function tellBuild({ version, build }: Pick<Handshake, 'version' | 'build'>): string {
  return version === VERSION ? `${version} (build ${build?.slice(0, 8) ?? 'unknown'})` : version
}

/** Where a daemon is to listen; files are absolute paths on its host. */
export const listenSchema = z.strictObject({
  host: z.string().min(1).max(255),
  /** 0: any that is free. */
  port: z.number().int().min(0).max(65535),
  tls: z.strictObject({ certFile: z.string().max(4096).startsWith('/'), keyFile: z.string().max(4096).startsWith('/') }).nullable(),
})
export type ListenRequest = z.infer<typeof listenSchema>

export const listeningSchema = z.object({ url: z.string(), tokenFile: z.string() })
export type Listening = z.infer<typeof listeningSchema>

export const daemonStatusSchema = handshakeSchema.extend({
  home: z.string(),
  startedAt: z.string(),
  /** Where it listens beside its socket; null: nowhere. */
  listening: listeningSchema.nullable(),
  /** What machines run with, and why; null until the probe has been made. */
  accelerator: z.object({ name: z.string(), reason: z.string() }).nullable(),
  budget: z.object({ totalBytes: z.number(), reservedBytes: z.number(), freeBytes: z.number() }),
  reservations: z.array(z.object({ id: z.string(), owner: z.string(), bytes: z.number() })),
  waiting: z.array(z.object({ owner: z.string(), message: z.string() })),
})
export type DaemonStatus = z.infer<typeof daemonStatusSchema>
