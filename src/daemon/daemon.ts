/**
 * The daemon put together: everything one host has, behind one socket.
 *
 * Owns: the order in which things start, are found again and end. Each part does its own work; nothing
 * but this file knows all of them.
 */
import { rm } from 'node:fs/promises'
import path from 'node:path'
import type { Logger } from 'pino'
import { CheckpointCatalog } from '../checkpoint/catalog.js'
import type { Settings } from '../config/environment.js'
import { Ledger } from '../admission/ledger.js'
import { createDriver, type Drivers } from '../hypervisor/registry.js'
import { removeAbandonedScratch } from '../git/scratch.js'
import { toKosa8Error } from '../errors/kosa8-error.js'
import { resolveImage } from '../image/store.js'
import type { SandboxName } from '../model/ids.js'
import { Gateways } from '../orchestrator/gateways.js'
import { openHostQueue } from '../orchestrator/host-queue.js'
import { Sandboxes } from '../orchestrator/sandboxes.js'
import { BUILD, VERSION } from '../protocol/status.js'
import { workerNameOf } from '../queue/queue.js'
import { startRedis, stopRedis, superviseRedis, type RedisServerConfig } from '../queue/redis-server.js'
import { SandboxHost } from '../sandbox/sandbox-host.js'
import { ApprovalStore } from '../store/approval-store.js'
import { MachineStore } from '../store/machine-store.js'
import { createPaths, preparePaths, type Paths } from '../store/paths.js'
import { writeRecord } from '../store/records.js'
import { ReservationStore } from '../store/reservation-store.js'
import { RunStore } from '../store/run-store.js'
import { SandboxStore } from '../store/sandbox-store.js'
import { removeAbandonedTemporaries } from '../util/atomic-write.js'
import { systemClock } from '../util/clock.js'
import { createDeferred } from '../util/deferred.js'
import { onceThereIsRoom } from '../util/disk-space.js'
import { ownProcessIdentity } from '../util/process-identity.js'
import { ActiveRuns } from './active-runs.js'
import { ApprovalBook } from './approval-book.js'
import { ImageCalls } from './image-service.js'
import { PeakHistory } from './peak-history.js'
import { PressureWatch } from './pressure-watch.js'
import { ADOPTION_GRACE_MS, ReservationBook } from './reservation-book.js'
import { RunCalls } from './run-service.js'
import { SandboxCalls } from './sandbox-service.js'
import { startServer } from './server/server.js'
import type { DaemonService, Services } from './services.js'
import { keepSpareRoom } from './spare-room.js'
import { TcpPlace } from './tcp-place.js'
import { WorkerProcess } from './worker-process.js'

/** A daemon nobody asked to stay ends after this long with nothing to look after, milliseconds. */
const LINGER_MS = 10_000

/** How a daemon is run. */
export interface DaemonConfig {
  settings: Settings
  /** Environment for the worker. */
  env: NodeJS.ProcessEnv
  log: Logger
  /** True: stays until it is told to stop. False: ends by itself once it has nothing to look after. */
  stays: boolean
  /** Fires when the process is asked to end. */
  signal: AbortSignal
}

/** Runs the daemon until it is told to stop or has nothing left to do. */
export async function runDaemon(config: DaemonConfig): Promise<void> {
  const { settings, log } = config
  const paths = createPaths(settings.home, settings.imagesDirectory)
  await preparePaths(paths)
  for (const folder of [paths.home, paths.machines, paths.sandboxes, paths.reservations]) await removeAbandonedTemporaries(folder)
  const stop = new AbortController()
  const ended = AbortSignal.any([config.signal, stop.signal])
  const onError = (message: string, error: unknown): void => log.error({ err: error }, message)
  const redis: RedisServerConfig = { directory: paths.redis, socketPath: paths.redisSocket }
  const host = await buildHost(config, paths, onError)
  const worker = new WorkerProcess({
    paths, env: config.env, version: `${VERSION} ${BUILD}`, onLost: (lost) => queue.releaseClaims(workerNameOf(lost)),
  })
  const book = new ReservationBook({
    ledger: host.ledger, clock: systemClock,
    peaksOf: (run, label) => host.peaks.of(run, label),
    workerIdentity: () => worker.identity(),
    endTrialMachine: async (trial) => {
      await host.sandboxHost.reapWhere(({ purpose }) => purpose.kind === 'trial' && purpose.trial === trial)
    },
  })
  const sandboxes = new Sandboxes({
    host: host.sandboxHost, store: host.sandboxStore, machines: host.machines, catalog: host.catalog, paths, clock: systemClock,
    caBundle: settings.caBundle,
    gateways: new Gateways(settings.hostProxies, (name, attempt) => log.info({ sandbox: name, ...attempt }, 'egress blocked')),
    reserve: (name, memoryMib, wait) => book.reserveSandbox(name, memoryMib, wait),
    release: (id) => book.release(id), onError,
  })
  await sandboxes.recover(host.promised.filter(({ kind }) => kind === 'sandbox'), { isAlone: !await worker.isAlive() })
  await removeAbandonedScratch()
  if (settings.redisUrl === null) {
    await startRedis(redis)
    void superviseRedis(redis, { onFailure: (error) => onError('redis-server could not be started again', error) }, ended)
  }
  const queue = await openHostQueue({ redisUrl: settings.redisUrl, paths, journal: host.runs })
  const active = new ActiveRuns({
    runs: host.runs, paths, clock: systemClock, sandboxes, queue, book, ensureWorker: () => worker.ensure(), onError,
  })
  const activity = new Activity(config.stays)
  const tcp = new TcpPlace(paths.token, () => services)
  const services: Services = activity.watch({
    daemon: createDaemonService({ config, paths, host, sandboxes, active, activity, tcp, stop: () => stop.abort() }),
    sandboxes: new SandboxCalls(sandboxes), reservations: book,
    runs: new RunCalls({ runs: host.runs, paths, clock: systemClock, sandboxes, active }),
    approvals: new ApprovalBook({
      store: new ApprovalStore(paths), clock: systemClock, onError,
      sandbox: (name) => sandboxes.read(name as SandboxName), checkpoints: (name) => sandboxes.checkpoints.list(name as SandboxName),
    }),
  })
  const server = await startServer(settings.socketPath, services)
  await noteDaemon(config, paths, ended)
  host.pressure.start(host.ledger, book)
  setTimeout(() => {
    const trials = host.promised.filter(({ kind }) => kind === 'trial')
    book.dropUnadopted(trials).catch((error: unknown) => onError('reservations nobody took over could not be released', error))
  }, ADOPTION_GRACE_MS).unref()
  await active.recover()
  log.info({ version: VERSION, home: paths.home }, 'the daemon answers')
  await keepSpareRoom(paths.home)

  const isBusy = async (): Promise<boolean> => active.count > 0 || !book.isIdle || (await sandboxes.list()).length > 0
  await waitForEnd(ended, activity, isBusy)
  const isIdle = !await isBusy()
  log.info(isIdle ? 'the daemon ends, nothing is left to look after' : 'the daemon ends, machines go on running')
  host.pressure.stop()
  active.stop()
  book.stop()
  await tcp.close()
  await server.close()
  await queue.close()
  stop.abort()
  if (isIdle) {
    await worker.stop()
    await sandboxes.checkpoints.collectGarbage({ quietAt: Date.now() })
    if (settings.redisUrl === null) await stopRedis(redis)
  }
  sandboxes.machines.detachAll()
  await keepSpareRoom(paths.home)
  await rm(paths.daemonRecord, { force: true })
}

/** Where a guest takes every byte there is, the record waits: who wants to make room must be answered without it. */
async function noteDaemon({ settings, log }: DaemonConfig, paths: Paths, ended: AbortSignal): Promise<void> {
  const note = (): Promise<void> => writeRecord(paths.daemonRecord, { ...ownProcessIdentity(), version: VERSION, socket: settings.socketPath })
  await note().catch((error: unknown) => {
    if (toKosa8Error(error).code !== 'DISK_FULL') throw error
    void onceThereIsRoom(note, ended, () => log.error({ err: error }, 'the record of the daemon waits for room')).catch(() => undefined)
  })
}

/** What the daemon has of its host before anything is served. */
interface Host {
  driver: Drivers['qemu']
  sandboxHost: SandboxHost
  sandboxStore: SandboxStore
  machines: MachineStore
  catalog: CheckpointCatalog
  runs: RunStore
  peaks: PeakHistory
  ledger: Ledger
  pressure: PressureWatch
  /** What an earlier daemon had promised. */
  promised: Awaited<ReturnType<ReservationStore['list']>>
}

async function buildHost(config: DaemonConfig, paths: Paths, onError: (message: string, error: unknown) => void): Promise<Host> {
  const driver = createDriver('qemu', {
    probeCacheFile: path.join(paths.home, 'acceleration.json'),
    probeDirectory: path.join(paths.socketRoot, 'probe'),
    probeImage: () => resolveImage('base', paths.images).then(({ boot }) => boot, () => null),
  })
  const machines = new MachineStore(paths)
  const runs = new RunStore(paths)
  const reservations = new ReservationStore(paths)
  const promised = await reservations.list()
  const pressure = new PressureWatch({ clock: systemClock, budgetLimitBytes: config.settings.memoryBudgetBytes, onError })
  await pressure.prime(promised.reduce((sum, { bytes }) => sum + bytes, 0))
  return {
    driver, machines, runs, promised, pressure,
    sandboxHost: new SandboxHost({ driver, paths, machines, clock: systemClock, owner: ownProcessIdentity() }),
    sandboxStore: new SandboxStore(paths),
    catalog: new CheckpointCatalog({ checkpoints: paths.checkpoints, layers: paths.layers }),
    peaks: new PeakHistory(runs),
    ledger: new Ledger({ budgetBytes: () => pressure.budgetBytes, memory: reservations }, promised),
  }
}

function createDaemonService(parts: {
  config: DaemonConfig; paths: Paths; host: Host; sandboxes: Sandboxes; active: ActiveRuns; activity: Activity; tcp: TcpPlace; stop: () => void
}): DaemonService {
  const startedAt = new Date().toISOString()
  const images = new ImageCalls({ imagesDirectory: parts.paths.images, catalog: parts.host.catalog, machines: parts.host.machines })
  return {
    async status() {
      const { budgetBytes, reservedBytes, reservations, waiting } = parts.host.ledger.status()
      const acceleration = await parts.host.driver.acceleration().catch(() => null)
      return {
        version: VERSION, build: BUILD, pid: process.pid, home: parts.paths.home, startedAt, listening: parts.tcp.listening,
        running: { sandboxes: (await parts.sandboxes.list()).length, runs: parts.active.count },
        accelerator: acceleration === null ? null : { name: acceleration.accelerator, reason: acceleration.reason },
        budget: { totalBytes: budgetBytes, reservedBytes, freeBytes: Math.max(0, budgetBytes - reservedBytes) },
        reservations: reservations.map(({ id, holder, bytes }) => ({ id, owner: holder, bytes })),
        waiting: waiting.map(({ holder, message }) => ({ owner: holder, message })),
      }
    },
    async stay() {
      parts.activity.stays = true
    },
    async listen(request) {
      return parts.tcp.open(request)
    },
    async stop() {
      // After the answer is on its way.
      setImmediate(parts.stop)
    },
    images: () => images.list(),
    deleteImage: (name) => images.remove(name),
    deleteOldImages: (name) => images.removeOld(name),
  }
}

/** Notes when the daemon was last asked for anything. */
class Activity {
  lastAtMs = performance.now()

  /** @param stays it does not end by itself, however long nothing is asked */
  constructor(public stays: boolean) {}

  /** Services whose every call counts as activity. */
  watch(services: Services): Services {
    const watched = <T extends object>(service: T): T => new Proxy(service, {
      get: (target, key) => {
        this.lastAtMs = performance.now()
        const value: unknown = Reflect.get(target, key)
        return typeof value === 'function' ? value.bind(target) as unknown : value
      },
    })
    return {
      daemon: watched(services.daemon), sandboxes: watched(services.sandboxes),
      runs: watched(services.runs), reservations: watched(services.reservations), approvals: watched(services.approvals),
    }
  }
}

async function waitForEnd(ended: AbortSignal, activity: Activity, isBusy: () => Promise<boolean>): Promise<void> {
  const over = createDeferred<void>()
  ended.addEventListener('abort', () => over.resolve(), { once: true })
  if (ended.aborted) return
  const timer = setInterval(() => {
    void isBusy().then((busy) => {
      if (busy || activity.stays) activity.lastAtMs = performance.now()
      else if (performance.now() - activity.lastAtMs > LINGER_MS) over.resolve()
    }, () => undefined)
  }, 1_000)
  await over.promise
  clearInterval(timer)
}
