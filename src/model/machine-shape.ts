/**
 * What a machine is built like, as it is kept in records and manifests.
 *
 * Owns: the schema and the default of what a record from before a limit existed does not say.
 */
import { z } from 'zod'

/** Processes (threads count) of all commands of a guest together, unless told otherwise. */
export const DEFAULT_PROCESSES_MAX = 4096

export const machineShapeSchema = z.object({
  memoryMib: z.number().int().positive(),
  cpus: z.number().int().positive(),
  /** `none`: no network card. `user`: a NAT of its own, outgoing only. */
  network: z.enum(['none', 'user']),
  /** Size of the disk, MiB, not below the image's; null: the image's. */
  diskMib: z.number().int().positive().nullable().default(null),
  processesMax: z.number().int().positive().default(DEFAULT_PROCESSES_MAX),
})

/** What a machine is built like; a clone has its parent's. */
export type MachineShape = z.infer<typeof machineShapeSchema>
