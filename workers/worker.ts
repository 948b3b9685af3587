/**
 * What both queues of a worker process share: stores, driver, queue, reservations.
 *
 * Owns: putting them together, and the end of a worker nobody needs any more.
 */
import { rm } from 'node:fs/promises'
import path from 'node:path'
import type { Logger } from 'pino'
import { z } from 'zod'
import { CheckpointCatalog } from '../src/checkpoint/catalog.js'
import type { Settings } from '../src/config/environment.js'
import type { HostProxies } from '../src/model/egress.js'
import { createDriver } from '../src/hypervisor/registry.js'
import { openHostQueue } from '../src/orchestrator/host-queue.js'
import { ReservationClient } from '../src/orchestrator/reservation-client.js'
import { workerNameOf, type RunQueue } from '../src/queue/queue.js'
import { SandboxHost } from '../src/sandbox/sandbox-host.js'
import { MachineStore } from '../src/store/machine-store.js'
import { createPaths, type Paths } from '../src/store/paths.js'
import { readRecord } from '../src/store/records.js'
import { RunStore } from '../src/store/run-store.js'
import { systemClock } from '../src/util/clock.js'
import { isProcessAlive, ownProcessIdentity } from '../src/util/process-identity.js'

/** Without a daemon and with nothing to do, a worker ends after this long, milliseconds. */
const ORPHAN_LINGER_MS = 30_000
const ORPHAN_TICK_MS = 1_000

const processRecordSchema = z.object({ pid: z.number().int().positive(), startTicks: z.number().int().nonnegative() })

/** The parts of one worker process. */
export interface Worker {
  paths: Paths
  runs: RunStore
  catalog: CheckpointCatalog
  host: SandboxHost
  hostProxies: HostProxies
  queue: RunQueue
  reservations: ReservationClient
  name: string
  log: Logger
  /** Fires when the worker is to give back what it holds and end. */
  signal: AbortSignal
  /** Tells whether trials are being worked on; set by `trials.ts`. */
  isWorking: () => boolean
  close(): Promise<void>
}

/** Puts a worker together. @throws QUEUE_UNREACHABLE */
export async function createWorker(settings: Settings, log: Logger, stop: AbortController): Promise<Worker> {
  const paths = createPaths(settings.home, settings.imagesDirectory)
  const owner = ownProcessIdentity()
  const machines = new MachineStore(paths)
  const runs = new RunStore(paths)
  const driver = createDriver('qemu', {
    probeCacheFile: path.join(paths.home, 'acceleration.json'),
    probeDirectory: path.join(paths.socketRoot, 'probe'),
    probeImage: async () => null,
  })
  const worker: Worker = {
    paths, runs, log, signal: stop.signal, hostProxies: settings.hostProxies,
    catalog: new CheckpointCatalog({ checkpoints: paths.checkpoints, layers: paths.layers }),
    host: new SandboxHost({ driver, paths, machines, owner, clock: systemClock }),
    queue: await openHostQueue({ redisUrl: settings.redisUrl, paths, journal: runs }),
    reservations: new ReservationClient(paths.daemonSocket),
    name: workerNameOf(owner),
    isWorking: () => false,
    close: async () => {
      clearInterval(watch)
      await worker.queue.close()
      await forgetOwnRecord(paths)
    },
  }
  const watch = watchForOrphan(worker, stop)
  return worker
}

/** The daemon noted this process; one that ended as it should is not looked for. */
async function forgetOwnRecord(paths: Paths): Promise<void> {
  const noted = await readRecord(paths.workerRecord, processRecordSchema).catch(() => null)
  if (noted?.pid === process.pid) await rm(paths.workerRecord, { force: true })
}

/** Nobody stops a worker whose daemon was killed and never came back: it does so itself. */
function watchForOrphan(worker: Worker, stop: AbortController): NodeJS.Timeout {
  let neededAtMs = performance.now()
  return setInterval(() => {
    void readRecord(worker.paths.daemonRecord, processRecordSchema).catch(() => null).then((daemon) => {
      const isNeeded = worker.isWorking() || (daemon !== null && isProcessAlive(daemon))
      if (isNeeded) neededAtMs = performance.now()
      else if (performance.now() - neededAtMs > ORPHAN_LINGER_MS) stop.abort()
    })
  }, ORPHAN_TICK_MS)
}
