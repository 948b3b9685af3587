/**
 * Checkpoints as their user knows them: ordinary snapshots of the daemon, with label and order in a store.
 *
 * Owns: the rules. Ten per sandbox, the oldest goes once the new one exists; a rewind drops the later ones;
 * labels are compared without case. Every order of steps is such that a crash leaves no record without its
 * snapshot that matters: records whose snapshot is gone do not count. Callers: client, sandbox handles.
 */
import path from 'node:path'
import { Kosa8Error, toKosa8Error } from '../errors/kosa8-error.js'
import type { RestoredSandbox, SnapshotDescription } from '../protocol/sandboxes.js'
import { tellDiskFull } from '../util/disk-space.js'
import {
  FileCheckpointStore, MAX_CHECKPOINTS_PER_SANDBOX, type CheckpointList, type CheckpointRecord, type CheckpointStore,
} from './checkpoint-store.js'
import type { WithApproval } from './approvals.js'
import type { DaemonConnection } from './connection.js'

/** What a checkpoint is taken with. */
export interface CheckpointOptions {
  /** Why it is taken. */
  label?: string
  /** Who takes it; `you` by default. */
  by?: string
}

/** A checkpoint just taken. */
export interface CheckpointResult {
  checkpoint: CheckpointRecord
  /** Ids of the oldest ones that had to go for it. */
  evicted: string[]
  /** Milliseconds from the call to the saved checkpoint. */
  save_ms: number
  /** Milliseconds the sandbox stood still. */
  pause_ms: number
}

/** Where a rewind goes. Its approval covers all of it: putting the sandbox back, and removing the later checkpoints. */
export interface RewindOptions extends WithApproval {
  /** Id or label; the most recent checkpoint by default. */
  to?: string
}

/** A sandbox that was put back. */
export interface RewindResult {
  checkpoint: CheckpointRecord
  /** Milliseconds until the sandbox ran again. */
  restore_ms: number
  /** Ids of the later checkpoints: they describe a future that did not happen. */
  dropped: string[]
}

/** Checkpoints of every sandbox, over one store. Unknown names: SANDBOX_UNKNOWN, CHECKPOINT_UNKNOWN. */
export class CheckpointsClient {
  constructor(private readonly connection: DaemonConnection, readonly store: CheckpointStore) {}

  /** Saves a running sandbox, which goes on. */
  async take(sandbox: string, { label: why = '', by = 'you' }: CheckpointOptions = {}): Promise<CheckpointResult> {
    const label = why.trim() === '' ? null : why
    await this.makeRoom(sandbox)
    const startedAt = performance.now()
    const body = label === null ? {} : { label }
    const snapshot = await this.connection.call('createSnapshot', { params: { name: sandbox }, body })
    const checkpoint = recordOf(snapshot, label, by)
    await this.change(sandbox, (records) => [...records, checkpoint], `${sandbox} goes on; the checkpoint was given up`)
      .catch(async (error: unknown) => {
        // Where that needs an approval it stays, outside of the list.
        await this.deleteSnapshots(sandbox, [snapshot.id]).catch(() => undefined)
        throw error
      })
    const save_ms = Math.round(performance.now() - startedAt)
    return { checkpoint, evicted: await this.evict(sandbox), save_ms, pause_ms: Math.round(snapshot.pauseMs) }
  }

  /** Those in this store whose snapshot is there; oldest first. */
  async list(sandbox: string): Promise<CheckpointRecord[]> {
    return (await this.look(sandbox)).records
  }

  /** Snapshots the daemon has that this store knows nothing of, e.g. of a kept clone; oldest first. */
  async listUnrecorded(sandbox: string): Promise<SnapshotDescription[]> {
    const { snapshots, records } = await this.look(sandbox)
    return snapshots.filter(({ id }) => !records.some((record) => record.id === id))
  }

  /** The one a rewind would go to. @throws CHECKPOINT_UNKNOWN naming those there are. */
  async find(sandbox: string, to?: string): Promise<CheckpointRecord> {
    return findIn(sandbox, await this.look(sandbox), to)
  }

  /**
   * Puts a sandbox back, under the same name. Its current state and the later checkpoints are gone then.
   * @throws an error whose message ends with the `restoreSnapshot(…)` call when the sandbox had been removed.
   */
  async rewind(sandbox: string, { to, ...options }: RewindOptions = {}): Promise<RewindResult> {
    const seen = await this.look(sandbox)
    const checkpoint = findIn(sandbox, seen, to)
    const { restoreMs } = await this.restore(sandbox, checkpoint.id, options).catch(async (error: unknown) => {
      throw await this.explainLoss(sandbox, checkpoint.id, options, error)
    })
    const dropped = laterThan(checkpoint, seen.records)
    // Records first: a crash in between must not leave a later one for the next rewind to go to.
    await this.forget(sandbox, dropped, `${sandbox} is back at ${checkpoint.id}, and its later checkpoints are still there`)
    await this.deleteSnapshots(sandbox, dropped, options)
    return { checkpoint, restore_ms: Math.round(restoreMs), dropped }
  }

  /** Puts a sandbox back to any snapshot of the daemon; the list is left as it is. */
  async restore(sandbox: string, snapshot: string, { approval }: WithApproval = {}): Promise<RestoredSandbox> {
    return this.connection.call('restoreSnapshot', { params: { name: sandbox }, body: { snapshot }, approval })
  }

  /** Removes one, given by id or label. The others are not affected. */
  async remove(sandbox: string, selector: string, { approval }: WithApproval = {}): Promise<CheckpointRecord> {
    const checkpoint = await this.find(sandbox, selector)
    await this.connection.call('deleteSnapshot', { params: { name: sandbox, id: checkpoint.id }, approval })
    await this.forgetIfThereIsRoom(sandbox, [checkpoint.id])
    return checkpoint
  }

  /** Forgets all records of a sandbox that is gone. */
  async forgetSandbox(sandbox: string): Promise<void> {
    const records = (await this.store.load()).sandboxes[sandbox] ?? []
    await this.forgetIfThereIsRoom(sandbox, records.map(({ id }) => id))
  }

  private async look(sandbox: string): Promise<Seen> {
    const snapshots = await this.connection.call('listSnapshots', { params: { name: sandbox } })
    const records = (await this.store.load()).sandboxes[sandbox] ?? []
    return { snapshots, records: records.filter((record) => snapshots.some((snapshot) => isOf(record, snapshot))) }
  }

  /** Where removing needs an approval, nothing is taken until the oldest of ten has been removed with one. */
  private async makeRoom(sandbox: string): Promise<void> {
    const { records } = await this.look(sandbox)
    const oldest = records.at(-MAX_CHECKPOINTS_PER_SANDBOX)
    if (oldest === undefined || (await this.connection.call('getSandbox', { params: { name: sandbox } })).approvals === null) return
    await this.connection.call('deleteSnapshot', { params: { name: sandbox, id: oldest.id } }).catch((thrown: unknown) => {
      const error = toKosa8Error(thrown)
      if (error.code !== 'APPROVAL_REQUIRED') throw error
      const message = `${sandbox} has ${MAX_CHECKPOINTS_PER_SANDBOX} checkpoints, and the oldest has to go before another is taken: ${error.message}`
      throw new Kosa8Error(error.code, message, { hint: error.hint, details: error.details, cause: error })
    })
  }

  private async evict(sandbox: string): Promise<string[]> {
    const { records } = await this.look(sandbox)
    const surplus = records.slice(0, Math.max(0, records.length - MAX_CHECKPOINTS_PER_SANDBOX)).map(({ id }) => id)
    if (surplus.length === 0) return []
    const evicted = await this.deleteSnapshots(sandbox, surplus)
    await this.forgetIfThereIsRoom(sandbox, surplus)
    return evicted
  }

  /** Records whose snapshots are gone do not count: that they could not be removed matters to nobody. */
  private async forgetIfThereIsRoom(sandbox: string, ids: string[]): Promise<void> {
    await this.forget(sandbox, ids, '').catch((error: unknown) => {
      if (toKosa8Error(error).code !== 'DISK_FULL') throw error
    })
  }

  /** @param kept what there is all the same, for the error when the list could not be written */
  private async forget(sandbox: string, ids: string[], kept: string): Promise<void> {
    if (ids.length > 0) await this.change(sandbox, (records) => records.filter(({ id }) => !ids.includes(id)), kept)
  }

  private async change(sandbox: string, change: (records: CheckpointRecord[]) => CheckpointRecord[], kept: string): Promise<void> {
    try {
      await this.store.update((list) => changed(list, sandbox, change))
    } catch (error) {
      const folder = this.store instanceof FileCheckpointStore ? path.dirname(this.store.path) : null
      throw folder === null ? error : await tellDiskFull(error, { what: 'the list of checkpoints', folder, kept })
    }
  }

  /** @returns those that were there; somebody else may have deleted the others. */
  private async deleteSnapshots(sandbox: string, ids: string[], { approval }: WithApproval = {}): Promise<string[]> {
    const deleted: string[] = []
    for (const id of ids) {
      try {
        await this.connection.call('deleteSnapshot', { params: { name: sandbox, id }, approval })
        deleted.push(id)
      } catch (error) {
        if (!Kosa8Error.isInstance(error) || error.code !== 'CHECKPOINT_UNKNOWN') throw error
      }
    }
    return deleted
  }

  /** The error for a restore that failed: if the machine is gone with it, it says how to get it back. */
  private async explainLoss(sandbox: string, id: string, { approval }: WithApproval, thrown: unknown): Promise<Kosa8Error> {
    const error = toKosa8Error(thrown)
    if (NOTHING_ENDED.test(error.code)) return error
    const state = await this.connection.call('getSandbox', { params: { name: sandbox } }).then((found) => found.state, () => 'unknown')
    if (state !== 'gone' && state !== 'unknown') return error
    const option = approval === undefined ? '' : `, { approval: ${JSON.stringify(approval)} }`
    const call = `restoreSnapshot(${JSON.stringify(sandbox)}, ${JSON.stringify(id)}${option})`
    const message = `${error.message.replace(/\.$/, '')}. The machine of ${sandbox} was removed, its checkpoint is still there; bring it back with ${call}`
    return new Kosa8Error(error.code, message, {
      hint: `${error.hint === undefined ? '' : `${error.hint}; then `}try again with: kosa8 rewind ${sandbox} --to ${id}${approval === undefined ? '' : ` --approval ${approval}`}`,
      details: { ...error.details, sandbox, snapshot: id }, cause: error,
    })
  }
}

/** Codes of a restore that was refused before anything ended; an unknown sandbox or checkpoint is none to come back to. */
const NOTHING_ENDED = /^(APPROVAL_|SANDBOX_UNKNOWN$|CHECKPOINT_UNKNOWN$)/

interface Seen {
  snapshots: SnapshotDescription[]
  records: CheckpointRecord[]
}

/** A record is of a snapshot of the same id and time: a later sandbox of that name may use the id again. */
function isOf(record: CheckpointRecord, snapshot: SnapshotDescription): boolean {
  return record.id === snapshot.id && record.created_at === snapshot.createdAt
}

function recordOf({ id, sandbox, createdAt, parent }: SnapshotDescription, label: string | null, by: string): CheckpointRecord {
  return { id, sandbox, label, by, created_at: createdAt, parent }
}

function findIn(sandbox: string, { snapshots, records }: Seen, to: string | undefined): CheckpointRecord {
  const wanted = to?.toLowerCase()
  const found = to === undefined
    ? records.at(-1)
    : records.find(({ id }) => id === wanted) ?? records.findLast(({ label }) => label?.toLowerCase() === wanted)
  const unrecorded = snapshots.find(({ id }) => id === wanted)
  if (found !== undefined) return found
  if (unrecorded !== undefined) return recordOf(unrecorded, unrecorded.label, 'kosa8')
  const message = to === undefined ? `sandbox ${sandbox} has no checkpoint` : `sandbox ${sandbox} has no checkpoint ${JSON.stringify(to)}`
  const there = [...new Set([...records, ...snapshots].map(({ id }) => id))]
  throw new Kosa8Error('CHECKPOINT_UNKNOWN', message, {
    hint: there.length === 0 ? `take one with: kosa8 checkpoint ${sandbox}` : `it can go back to: ${there.join(', ')}`,
  })
}

/** In a list the later ones stand below; a snapshot outside of it is compared by time. */
function laterThan(checkpoint: CheckpointRecord, records: CheckpointRecord[]): string[] {
  const at = records.findIndex(({ id }) => id === checkpoint.id)
  const later = at < 0 ? records.filter(({ created_at }) => created_at > checkpoint.created_at) : records.slice(at + 1)
  return later.map(({ id }) => id)
}

function changed(list: CheckpointList, sandbox: string, change: (records: CheckpointRecord[]) => CheckpointRecord[]): CheckpointList {
  const { [sandbox]: records = [], ...others } = list.sandboxes
  const after = change(records)
  return { ...list, sandboxes: after.length === 0 ? others : { ...others, [sandbox]: after } }
}
