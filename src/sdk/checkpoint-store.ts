/**
 * Where the list of checkpoints is kept: labels and order. The snapshots themselves are the daemon's.
 *
 * Owns: the form of the list, and the two stores. Which records there should be is decided by `checkpoints.ts`.
 * CLI, SDK and MCP server share one file by default; updates of all of them are made one after the other.
 */
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import { readSettings } from '../config/environment.js'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { writeFileAtomic } from '../util/atomic-write.js'
import { withFileLock } from '../util/file-lock.js'

/** Checkpoints a sandbox has at most; one more evicts the oldest. */
export const MAX_CHECKPOINTS_PER_SANDBOX = 10

const recordSchema = z.object({
  /** `<sandbox>-ckpt-<n>`. */
  id: z.string(),
  sandbox: z.string(),
  /** Why it was taken. */
  label: z.string().nullable(),
  /** Who took it: `you`, or the name of an assistant. */
  by: z.string(),
  /** ISO 8601. */
  created_at: z.string(),
  /** Id of the checkpoint its state descends from, which may be gone by now; null when there is none or it is not known. */
  parent: z.string().nullable().optional(),
})
/** One checkpoint as its user knows it. */
export type CheckpointRecord = z.infer<typeof recordSchema>

const listSchema = z.object({ format: z.literal('kosa8.checkpoints/1'), sandboxes: z.record(z.string(), z.array(recordSchema)) })
/** All checkpoints, by sandbox; of each the oldest first. */
export type CheckpointList = z.infer<typeof listSchema>

/** Keeps the list; any object with `load` and `update` can be one, e.g. over a database. */
export interface CheckpointStore {
  /** Where the list is, for a store that is a file. */
  readonly path?: string
  load(): Promise<CheckpointList>
  /**
   * Replaces the list by what `change` makes of it, and returns that. No other update comes in between.
   * `change` does not touch the list it is given, and may be called again.
   */
  update(change: (list: CheckpointList) => CheckpointList): Promise<CheckpointList>
}

/** A list without checkpoints. */
export function emptyCheckpointList(): CheckpointList {
  return { format: 'kosa8.checkpoints/1', sandboxes: {} }
}

/** A list of this process alone; gone with it. */
export class MemoryCheckpointStore implements CheckpointStore {
  private list = emptyCheckpointList()

  async load(): Promise<CheckpointList> {
    return structuredClone(this.list)
  }

  async update(change: (list: CheckpointList) => CheckpointList): Promise<CheckpointList> {
    this.list = structuredClone(change(structuredClone(this.list)))
    return this.load()
  }
}

/** A list in a file that any number of processes share. */
export class FileCheckpointStore implements CheckpointStore {
  private turn: Promise<unknown> = Promise.resolve()

  /** @param path absolute; the file of the command line by default */
  constructor(readonly path: string = checkpointFileOf(readSettings().home)) {}

  /** @throws STORE_CORRUPT when the file is not one of ours. */
  async load(): Promise<CheckpointList> {
    const text = await readFile(this.path, 'utf8').catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return null
      throw error
    })
    return text === null ? emptyCheckpointList() : this.parse(text)
  }

  /** @throws STORE_CORRUPT, TIMED_OUT when others hold its lock for a minute. */
  async update(change: (list: CheckpointList) => CheckpointList): Promise<CheckpointList> {
    const updated = this.turn.then(() => withFileLock(`${this.path}.lock`, async () => {
      const list = change(await this.load())
      await writeFileAtomic(this.path, `${JSON.stringify(list, null, 2)}\n`)
      return list
    }))
    this.turn = updated.catch(() => undefined)
    return updated
  }

  private parse(text: string): CheckpointList {
    try {
      return listSchema.parse(JSON.parse(text))
    } catch (cause) {
      throw new Kosa8Error('STORE_CORRUPT', `${this.path} is not a list of checkpoints this version can read`, {
        hint: 'put it back from a backup, or move it away: the snapshots are not affected', cause,
      })
    }
  }
}

/**
 * The file of a home that command line, SDK and MCP server share.
 * @param url a daemon on another host: its sandboxes may have the names of this host's
 */
export function checkpointFileOf(home: string, url?: string): string {
  if (url === undefined) return path.join(home, 'checkpoints.json')
  return path.join(home, 'remote', `${new URL(url).host.replace(/[^a-z0-9.-]/g, '_')}.checkpoints.json`)
}
