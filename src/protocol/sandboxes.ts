/**
 * What crosses the wire about sandboxes, their snapshots and the images they boot from.
 *
 * Owns: schemas of requests (unknown fields refused) and of answers (unknown fields dropped).
 */
import { z } from 'zod'
import { blockedAttemptSchema, egressSchema } from '../model/egress.js'
import { sandboxNameSchema } from '../model/ids.js'
import { errorRecordSchema } from '../model/run.js'
import { publicKeySchema } from './approvals.js'

/** Bounds of a machine's size; the upper ones only catch slips of the pen. */
export const MEMORY_MIB_MIN = 128
export const MEMORY_MIB_MAX = 1024 * 1024
export const CPUS_MAX = 64
/** What the file system of the images can grow to. */
export const DISK_MIB_MAX = 1024 * 1024
/** Below this not even a shell script gets far; above it the guest's kernel has no numbers left. */
export const PROCESSES_MAX_MIN = 16
export const PROCESSES_MAX_MAX = 32768

/** Largest file moved into or out of a sandbox by one call, in bytes. */
export const SANDBOX_FILE_BYTES_MAX = 4 * 1024 ** 3

export const memoryMibSchema = z.number().int().min(MEMORY_MIB_MIN).max(MEMORY_MIB_MAX)
export const cpusSchema = z.number().int().min(1).max(CPUS_MAX)
export const diskMibSchema = z.number().int().min(1).max(DISK_MIB_MAX)
export const processesMaxSchema = z.number().int().min(PROCESSES_MAX_MIN).max(PROCESSES_MAX_MAX)
export const imageNameSchema = z.string().regex(/^[a-z0-9][a-z0-9._-]{0,63}$/, 'use lower-case letters, digits, dots, dashes and underscores')
const hostPathSchema = z.string().max(4096).startsWith('/', 'give an absolute path')

/** A machine to be made: image, size and reach. */
export const machineRequestSchema = z.strictObject({
  image: imageNameSchema,
  memoryMib: memoryMibSchema,
  cpus: cpusSchema,
  egress: egressSchema,
  /** Size of the disk; the image's by default. */
  diskMib: diskMibSchema.optional(),
  /** Processes (threads count) of all its commands together; 4096 by default. */
  processesMax: processesMaxSchema.optional(),
})
export type MachineRequest = z.infer<typeof machineRequestSchema>

export const createSandboxSchema = machineRequestSchema.extend({
  name: sandboxNameSchema,
  /** Repository on the host that is put into the sandbox's workspace. */
  repository: hostPathSchema.optional(),
  /** Public key of the person whose approval guarded calls need; none by default. */
  approvals: publicKeySchema.optional(),
})
export type CreateSandboxRequest = z.infer<typeof createSandboxSchema>

/** One sandbox as the daemon sees it now. */
export const sandboxSchema = z.object({
  name: z.string(),
  image: z.string(),
  memoryMib: z.number(),
  cpus: z.number(),
  /** Size of the disk; null where it was made before sandboxes had one of their own. */
  diskMib: z.number().nullable(),
  processesMax: z.number(),
  /** `deny`, `allow`, or hosts in normal form, joined with commas. */
  egress: z.string(),
  /** What it tried to reach and was not to, the latest first; since its daemon was started. */
  blocked: z.array(blockedAttemptSchema),
  /**
   * `starting`: it is still being made. `disk-full`: it stands still at a write for which the host's disk has no room, and goes on by
   * itself once there is some. `unreachable`: its machine runs, but has not answered since the daemon was started, which
   * tries again and again. `gone`: its machine has ended without being asked to.
   */
  state: z.enum(['starting', 'running', 'disk-full', 'paused', 'unreachable', 'gone']),
  /** What is going on while it is `starting`, in a line; null otherwise. */
  step: z.string().nullable(),
  createdAt: z.string(),
  /** Repository on the host it was made with. */
  repository: z.string().nullable(),
  /** Fingerprint of the key that must sign approvals for guarded calls; null: they need none. */
  approvals: z.string().nullable(),
  /** Host memory nobody else shares with it; null when it does not run. */
  privateBytes: z.number().nullable(),
})
export type SandboxDescription = z.infer<typeof sandboxSchema>

export const setEgressSchema = z.strictObject({ egress: egressSchema })

/** `<sandbox>-ckpt-<n>`, or any other name of the same characters. */
export const snapshotIdSchema = z.string().regex(/^[a-z0-9][a-z0-9-]{0,63}$/, 'use 1 to 64 lower-case letters, digits and dashes')

export const createSnapshotSchema = z.strictObject({
  /** `<sandbox>-ckpt-<n>` with the next number, one never used before, by default. */
  id: snapshotIdSchema.optional(),
  label: z.string().max(200).optional(),
})
export type CreateSnapshotRequest = z.infer<typeof createSnapshotSchema>

export const snapshotSchema = z.object({
  id: z.string(),
  sandbox: z.string(),
  label: z.string().nullable(),
  createdAt: z.string(),
  /** The snapshot its state descends from, which may be of another sandbox or gone by now; null when there is none. */
  parent: z.string().nullable(),
  /** Milliseconds the sandbox stood still for it. */
  pauseMs: z.number(),
  /** Bytes on disk it costs. */
  sizeBytes: z.number(),
})
export type SnapshotDescription = z.infer<typeof snapshotSchema>

export const restoreSchema = z.strictObject({ snapshot: snapshotIdSchema })
export const restoredSchema = z.object({ snapshot: snapshotSchema, restoreMs: z.number() })
export type RestoredSandbox = z.infer<typeof restoredSchema>

/** Clones that one fork can make. */
export const FORK_COUNT_MAX = 64

export const forkSandboxSchema = z.strictObject({ names: z.array(sandboxNameSchema).min(1).max(FORK_COUNT_MAX) })
export type ForkSandboxRequest = z.infer<typeof forkSandboxSchema>

/** What became of each clone: a sandbox, or the error that kept it from being one. */
export const forkedSandboxSchema = z.object({ name: z.string(), error: errorRecordSchema.nullable() })
export type ForkedSandboxEntry = z.infer<typeof forkedSandboxSchema>

export const imageSchema = z.object({
  name: z.string(),
  hash: z.string(),
  createdAt: z.string(),
  sizeBytes: z.number(),
  /** `recipe`, or the container image it was imported from, with the first digits of its digest. */
  source: z.string(),
  /** Sandboxes, runs and checkpoints of this home; of others, only that a machine runs. */
  usedBy: z.array(z.string()),
})
export type ImageDescription = z.infer<typeof imageSchema>

/** What became of the older versions of an image. */
export const removedImagesSchema = z.object({
  /** Hashes. */
  removed: z.array(z.string()),
  freedBytes: z.number(),
  kept: z.array(z.object({ hash: z.string(), usedBy: z.array(z.string()) })),
})
export type RemovedImages = z.infer<typeof removedImagesSchema>

/** Path of a file in the guest, absolute or relative to the workspace. */
export const guestPathQuerySchema = z.strictObject({
  path: z.string().min(1).max(4096),
  /** Octal permission bits for a file that is written, e.g. "755". */
  mode: z.string().regex(/^[0-7]{3,4}$/).optional(),
})

/** A command to run in a sandbox, without a shell: the first frame of an exec connection. */
export const execRequestSchema = z.strictObject({
  argv: z.array(z.string()).min(1).max(4096),
  env: z.record(z.string(), z.string()).optional(),
  cwd: z.string().max(4096).optional(),
  user: z.string().max(64).optional(),
  pty: z.strictObject({ rows: z.number().int().min(1).max(65535), columns: z.number().int().min(1).max(65535) }).optional(),
  /** True: the client sends standard input. False (default): it is empty and closed. */
  stdin: z.boolean().optional(),
})
export type ExecRequest = z.infer<typeof execRequestSchema>

/** How a command ended: exactly one of the two is set. */
export const execExitSchema = z.object({ code: z.number().nullable(), signal: z.number().nullable() })
export type ExecExit = z.infer<typeof execExitSchema>
