/**
 * Records of sandboxes: what a sandbox is, whichever machine it runs on at the moment.
 *
 * Owned by the daemon, which is the only one to write them.
 */
import { z } from 'zod'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { CheckpointId, MachineId, RunId, SandboxName } from '../model/ids.js'
import { machineShapeSchema } from '../model/machine-shape.js'
import { baseSchema } from '../model/run.js'
import { findNearest } from '../util/nearest.js'
import type { Paths } from './paths.js'
import { RecordFolder } from './records.js'

const branded = <T extends string>() => z.string().transform((text) => text as T)

/** One sandbox. */
export const sandboxRecordSchema = z.object({
  name: branded<SandboxName>(),
  createdAt: z.string(),
  /** Name of the base image. */
  image: z.string(),
  shape: machineShapeSchema,
  /** Normal form of its rule. */
  egress: z.string(),
  /** Where its commands start without a repository; null: in root's home. */
  workingDirectory: z.string().nullable().default(null),
  /** The machine it runs on; null while it has none. */
  machine: branded<MachineId>().nullable(),
  /** The repository that was put into it. */
  repository: z.object({
    hostPath: z.string(),
    /** Path in the guest. */
    path: z.string(),
    base: baseSchema,
  }).nullable(),
  /** Number of the next checkpoint; a number is never used twice. */
  nextCheckpoint: z.number().int().nonnegative(),
  /** Public key, PEM, of the person whose approval guarded calls need; null: they need none. Records of earlier versions lack it. */
  approvals: z.string().nullable().default(null),
  /** The checkpoint its present state descends from; null: none, or not known. */
  parent: z.object({ sandbox: branded<SandboxName>(), id: branded<CheckpointId>() }).nullable().default(null),
  /** The run it was made for and goes away with. */
  ownedByRun: branded<RunId>().nullable(),
})
export type SandboxRecord = z.infer<typeof sandboxRecordSchema>

/** Records of sandboxes, `sandboxes/<name>.json`. */
export class SandboxStore {
  private readonly records: RecordFolder<SandboxRecord>

  constructor(paths: Paths) {
    this.records = new RecordFolder<SandboxRecord>(paths.sandboxes, sandboxRecordSchema)
  }

  /** @throws Kosa8Error SANDBOX_EXISTS */
  async create(record: SandboxRecord): Promise<void> {
    if (await this.records.writeOnce(record.name, record)) return
    throw new Kosa8Error('SANDBOX_EXISTS', `there is a sandbox named ${record.name} already`, {
      hint: `choose another name, or remove it with: kosa8 rm ${record.name}`,
    })
  }

  async find(name: SandboxName): Promise<SandboxRecord | null> {
    return this.records.read(name)
  }

  /** @throws Kosa8Error SANDBOX_UNKNOWN */
  async read(name: SandboxName): Promise<SandboxRecord> {
    const record = await this.records.read(name)
    if (record !== null) return record
    const nearest = findNearest(name, (await this.list()).map((each) => each.name))
    throw new Kosa8Error('SANDBOX_UNKNOWN', `there is no sandbox named ${name}`, {
      hint: `${nearest === null ? '' : `did you mean ${nearest}? `}list them with: kosa8 ls`,
    })
  }

  /** Changes fields of a sandbox. @throws Kosa8Error SANDBOX_UNKNOWN */
  async update(name: SandboxName, change: Partial<Omit<SandboxRecord, 'name'>>): Promise<SandboxRecord> {
    const record = { ...(await this.read(name)), ...change }
    await this.records.write(name, record)
    return record
  }

  async remove(name: SandboxName): Promise<void> {
    await this.records.remove(name)
  }

  async list(): Promise<SandboxRecord[]> {
    return this.records.list()
  }
}
