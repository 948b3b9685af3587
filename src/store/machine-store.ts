/**
 * The journal of machines: written before a machine starts, removed after it is gone.
 *
 * Owns: one record per machine, from which a restarted daemon or worker finds, adopts or reaps it. The
 * owner is the process that drives the machine; a machine whose owner is dead belongs to nobody.
 */
import { z } from 'zod'
import type { MachineId, RunId, SandboxName, TrialId } from '../model/ids.js'
import { machineShapeSchema } from '../model/machine-shape.js'
import type { Paths } from './paths.js'
import { RecordFolder } from './records.js'

const branded = <T extends string>() => z.string().transform((text) => text as T)

const bootImageSchema = z.object({ kernel: z.string(), initrd: z.string(), rootDisk: z.string() })

const snapshotSchema = z.object({
  shape: machineShapeSchema,
  image: bootImageSchema,
  fingerprint: z.object({
    driver: z.string(), version: z.string(), machineType: z.string(), accelerator: z.string(), cpuModel: z.string(),
  }),
  memoryFile: z.string(),
  deviceFile: z.string(),
  diskLayer: z.string(),
})

/** Same form as MachineHandle of the driver contract; a test holds the two together. */
export const machineHandleSchema = z.object({
  version: z.literal(1),
  driver: z.string(),
  id: branded<MachineId>(),
  /** 0 until the process has been started. */
  pid: z.number().int().nonnegative(),
  pidStartTicks: z.number().int().nonnegative(),
  directory: z.string(),
  layersDirectory: z.string(),
  shape: machineShapeSchema,
  image: bootImageSchema,
  memoryFile: z.string(),
  activeLayer: z.string(),
  parent: snapshotSchema.nullable(),
})

export const processIdentitySchema = z.object({
  pid: z.number().int().positive(),
  startTicks: z.number().int().nonnegative(),
})

/** What a machine is for. */
export const machinePurposeSchema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('sandbox'), name: branded<SandboxName>() }),
  z.object({
    kind: z.literal('trial'), run: branded<RunId>(), trial: branded<TrialId>(), attempt: z.number().int().positive(),
  }),
])
export type MachinePurpose = z.infer<typeof machinePurposeSchema>

/** One line of the journal. */
export const machineRecordSchema = z.object({
  id: branded<MachineId>(),
  /** Folder of the machine's sockets and log; known before there is a process. */
  directory: z.string(),
  createdAt: z.string(),
  owner: processIdentitySchema,
  purpose: machinePurposeSchema,
  /** Null until the driver has started it. */
  handle: machineHandleSchema.nullable(),
})
export type MachineRecord = z.infer<typeof machineRecordSchema>

/** Records of machines, `machines/<id>.json`. */
export class MachineStore {
  private readonly records: RecordFolder<MachineRecord>

  constructor(paths: Paths) {
    this.records = new RecordFolder<MachineRecord>(paths.machines, machineRecordSchema)
  }

  /** Writes a record for the first or another time; call it before the machine's process starts. */
  async put(record: MachineRecord): Promise<void> {
    await this.records.write(record.id, record)
  }

  /** Changes fields of a record; nothing happens when there is none. */
  async update(id: MachineId, change: Partial<Pick<MachineRecord, 'handle' | 'owner' | 'purpose'>>): Promise<void> {
    const record = await this.records.read(id)
    if (record !== null) await this.records.write(id, { ...record, ...change })
  }

  async read(id: MachineId): Promise<MachineRecord | null> {
    return this.records.read(id)
  }

  /** Removes a record; call it after the machine is destroyed. */
  async remove(id: MachineId): Promise<void> {
    await this.records.remove(id)
  }

  async list(): Promise<MachineRecord[]> {
    return this.records.list()
  }
}
