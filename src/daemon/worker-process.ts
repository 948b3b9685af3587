/**
 * The worker as a process: one per host, started when there is work and found again after a restart.
 *
 * Owns: starting and ending it. It runs in a session of its own and survives the daemon; what it does is in `workers/`.
 */
import { open } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { z } from 'zod'
import type { Paths } from '../store/paths.js'
import { readRecord, writeRecord } from '../store/records.js'
import { createDeferred } from '../util/deferred.js'
import { findPackageRoot } from '../util/package-root.js'
import { isProcessAlive, ownProcessIdentity, readProcessIdentity, type ProcessIdentity } from '../util/process-identity.js'
import { spawnProgram } from '../util/spawn.js'

const ENTRY = 'dist/workers/main.js'
/** A worker asked to end gives back its trials first; after this it is killed, milliseconds. */
const STOP_TIMEOUT_MS = 15_000
const LOOK_AGAIN_MS = 50

const workerRecordSchema = z.object({
  pid: z.number().int().positive(),
  startTicks: z.number().int().nonnegative(),
  version: z.string(),
})

/** What the worker is started with. */
export interface WorkerProcessParts {
  paths: Paths
  env: NodeJS.ProcessEnv
  /** Version and build; a worker of another one is replaced when work comes. */
  version: string
  /** Called before another worker is started in place of one that died. */
  onLost: (worker: ProcessIdentity) => Promise<void>
}

/** The one worker of this host. */
export class WorkerProcess {
  private starting: Promise<void> | null = null

  constructor(private readonly parts: WorkerProcessParts) {}

  /** Starts a worker unless one is alive. Calls at the same time start one. */
  async ensure(): Promise<void> {
    this.starting ??= this.ensureOne().finally(() => { this.starting = null })
    await this.starting
  }

  /** Who works on trials; this process itself while there is no worker. */
  async identity(): Promise<ProcessIdentity> {
    return (await this.find()) ?? ownProcessIdentity()
  }

  async isAlive(): Promise<boolean> {
    return (await this.find()) !== null
  }

  /** Ends the worker, if there is one: it gives its trials back first. */
  async stop(): Promise<void> {
    const worker = await this.find()
    if (worker === null) return
    process.kill(worker.pid, 'SIGTERM')
    const deadline = performance.now() + STOP_TIMEOUT_MS
    while (isProcessAlive(worker)) {
      if (performance.now() > deadline) process.kill(worker.pid, 'SIGKILL')
      await delay(LOOK_AGAIN_MS)
    }
  }

  private async find(): Promise<ProcessIdentity | null> {
    const record = await this.readLast()
    return record !== null && isProcessAlive(record) ? record : null
  }

  private async readLast(): Promise<z.infer<typeof workerRecordSchema> | null> {
    return readRecord(this.parts.paths.workerRecord, workerRecordSchema).catch(() => null)
  }

  private async ensureOne(): Promise<void> {
    const { paths, env, version, onLost } = this.parts
    const last = await this.readLast()
    if (last !== null && isProcessAlive(last)) {
      if (last.version === version) return
      await this.stop()
    }
    if (last !== null) await onLost(last)
    const log = await open(paths.workerLog, 'a', 0o600)
    try {
      const child = spawnProgram(process.execPath, [path.join(findPackageRoot(), ENTRY)], {
        detached: true, stdio: ['ignore', log.fd, log.fd], env, cwd: '/',
      })
      const spawned = createDeferred<void>()
      child.once('spawn', () => spawned.resolve())
      child.once('error', (error) => spawned.reject(error))
      await spawned.promise
      child.unref()
      const identity = readProcessIdentity(child.pid as number)
      if (identity !== null) await writeRecord(paths.workerRecord, { ...identity, version })
    } finally {
      await log.close()
    }
  }
}
