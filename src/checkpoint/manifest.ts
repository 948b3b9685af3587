/**
 * The manifest of a checkpoint: the file whose presence commits it.
 *
 * Owns: the format `kosa8.checkpoint/1`, reading and refusing. It is written last, by rename; a folder
 * without one is the leftover of a crash. Paths in it are names: of files beside it, or of overlays in the
 * layers folder.
 */
import { open } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { MachineSnapshot } from '../hypervisor/driver.js'
import type { CheckpointId, SandboxName } from '../model/ids.js'
import { machineShapeSchema } from '../model/machine-shape.js'
import { baseSchema } from '../model/run.js'

export const CHECKPOINT_FORMAT = 'kosa8.checkpoint/1'
export const MANIFEST_NAME = 'manifest.json'
/** Names of the files beside the manifest. */
export const MEMORY_NAME = 'memory'
export const EXTENTS_NAME = 'memory.extents'
export const DEVICE_NAME = 'device'

/** A manifest is a few KiB; more than this is not one of ours. */
const MANIFEST_BYTES_MAX = 256 * 1024

const fileSchema = z.object({
  /** Name beside the manifest, or of the overlay in the layers folder. */
  name: z.string().regex(/^[\w.-]+$/),
  sizeBytes: z.number().int().nonnegative(),
  /** Hexadecimal; of a memory file, over its extents only (see hash.ts). */
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
})

export const checkpointManifestSchema = z.object({
  format: z.literal(CHECKPOINT_FORMAT),
  id: z.string().transform((id) => id as CheckpointId),
  sandbox: z.string().transform((name) => name as SandboxName),
  label: z.string().nullable(),
  createdAt: z.string(),
  image: z.object({ name: z.string(), hash: z.string() }),
  /** Files the machine was booted from. */
  boot: z.object({ kernel: z.string(), initrd: z.string(), rootDisk: z.string() }),
  shape: machineShapeSchema,
  fingerprint: z.object({
    driver: z.string(), version: z.string(), machineType: z.string(), accelerator: z.string(), cpuModel: z.string(),
  }),
  /** The overlay that was frozen; its backing chain belongs to the checkpoint too. */
  diskLayer: z.string().regex(/^[\w.-]+$/),
  /** Files of this checkpoint alone: memory, its extents, device state, the overlay. */
  files: z.array(fileSchema),
  /** Overlays below `diskLayer`, which other checkpoints may share; absent from manifests written before it was noted. */
  lowerLayers: z.array(fileSchema).optional(),
  /** The checkpoint this one's state descends from; null: the sandbox was booted fresh, or it is not known. */
  parent: z.object({
    sandbox: z.string().transform((name) => name as SandboxName), id: z.string().transform((id) => id as CheckpointId),
  }).nullable().default(null),
  repository: z.object({ hostPath: z.string(), path: z.string(), base: baseSchema }).nullable(),
  /** Milliseconds the sandbox's processes stood still for it. */
  pauseMs: z.number().nonnegative(),
  /** Bytes of memory that had to be written in the pause. */
  privateBytes: z.number().int().nonnegative(),
})
export type CheckpointManifest = z.infer<typeof checkpointManifestSchema>
export type CheckpointFile = z.infer<typeof fileSchema>

/** The snapshot a committed checkpoint stands for, as a driver wants it. */
export function snapshotOf(manifest: CheckpointManifest, place: { directoryOf(sandbox: SandboxName, id: CheckpointId): string }): MachineSnapshot {
  const directory = place.directoryOf(manifest.sandbox, manifest.id)
  return {
    shape: manifest.shape, image: manifest.boot, fingerprint: manifest.fingerprint, diskLayer: manifest.diskLayer,
    memoryFile: path.join(directory, MEMORY_NAME), deviceFile: path.join(directory, DEVICE_NAME),
  }
}

/**
 * Reads the manifest of a folder; null when there is none.
 * @throws CHECKPOINT_CORRUPT naming the file, CHECKPOINT_INCOMPATIBLE for another format.
 */
export async function readManifest(directory: string): Promise<CheckpointManifest | null> {
  const file = path.join(directory, MANIFEST_NAME)
  const text = await readBounded(file)
  if (text === null) return null
  const value = parseJson(text, file)
  const format = (value as { format?: unknown } | null)?.format
  if (typeof format === 'string' && format.startsWith('kosa8.checkpoint/') && format !== CHECKPOINT_FORMAT) {
    throw new Kosa8Error('CHECKPOINT_INCOMPATIBLE', `${file} has format ${format}, this kosa8 reads ${CHECKPOINT_FORMAT}`, {
      hint: 'use the version of kosa8 that wrote it',
    })
  }
  const parsed = checkpointManifestSchema.safeParse(value)
  if (parsed.success) return parsed.data
  const issue = parsed.error.issues[0]
  throw corrupt(file, `${issue?.path.join('.')}: ${issue?.message}`)
}

/** The error for a checkpoint one of whose files is not what it was. */
export function corrupt(file: string, what: string, cause?: unknown): Kosa8Error {
  return new Kosa8Error('CHECKPOINT_CORRUPT', `the checkpoint file ${file} is damaged: ${what}`, {
    hint: 'choose another checkpoint, and remove this one with `kosa8 checkpoint rm`', details: { file }, cause,
  })
}

async function readBounded(file: string): Promise<string | null> {
  const handle = await open(file, 'r').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return null
    throw error
  })
  if (handle === null) return null
  try {
    if ((await handle.stat()).size > MANIFEST_BYTES_MAX) throw corrupt(file, 'it is too large')
    return await handle.readFile('utf8')
  } finally {
    await handle.close()
  }
}

function parseJson(text: string, file: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw corrupt(file, 'it is not JSON', error)
  }
}
