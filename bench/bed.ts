/**
 * A home of its own for one benchmark: the product's parts put together as the daemon does, one sandbox,
 * one committed checkpoint of it.
 *
 * Owns: where everything lies and that all of it is gone at the end, also after Ctrl-C. The home is a folder
 * inside the state home, so that figures are of the file system machines really live on.
 */
import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises'
import path from 'node:path'
import { CheckpointCatalog } from '../src/checkpoint/catalog.js'
import { snapshotOf, type CheckpointManifest } from '../src/checkpoint/manifest.js'
import { readSettings } from '../src/config/environment.js'
import { runInGuest } from '../src/guest/run-in-guest.js'
import type { GuestSession } from '../src/guest/session.js'
import type { MachineSnapshot } from '../src/hypervisor/driver.js'
import { createDriver } from '../src/hypervisor/registry.js'
import { resolveImage } from '../src/image/store.js'
import type { ReservationId, SandboxName } from '../src/model/ids.js'
import { NO_PROXIES } from '../src/model/egress.js'
import { Gateways } from '../src/orchestrator/gateways.js'
import { Sandboxes } from '../src/orchestrator/sandboxes.js'
import { SandboxHost } from '../src/sandbox/sandbox-host.js'
import type { Sandbox } from '../src/sandbox/sandbox.js'
import { MachineStore } from '../src/store/machine-store.js'
import { createPaths, preparePaths } from '../src/store/paths.js'
import { SandboxStore } from '../src/store/sandbox-store.js'
import type { CleanupStack } from '../src/util/cleanup.js'
import { systemClock } from '../src/util/clock.js'
import { ownProcessIdentity } from '../src/util/process-identity.js'
import { TimedDriver } from './timed-driver.js'

/** What every machine here is like: the size a sandbox has by default. */
export const MEMORY_MIB = 512
const SOURCE = 'bench-source' as SandboxName
const PURPOSE = { kind: 'sandbox', name: SOURCE } as const

/** Everything a measure works with. */
export interface Bed {
  /** Free folder on the file system of checkpoints. */
  scratch: string
  driver: TimedDriver
  sandboxes: Sandboxes
  host: SandboxHost
  /** The sandbox that was booted. */
  source: SandboxName
  checkpoint: CheckpointManifest
  snapshot: MachineSnapshot
  layers: string
  /** QEMU's command line as the product runs it, of a booted machine. */
  bootCommand: string[]
  /** The same of a clone. */
  cloneCommand: string[]
  /** Fires on Ctrl-C. */
  signal: AbortSignal
  clone(): Promise<Sandbox>
  boot(): Promise<Sandbox>
}

/** Sets everything up; `cleanup` gets the way back. */
export async function makeBed(cleanup: CleanupStack, signal: AbortSignal): Promise<Bed> {
  const settings = readSettings()
  await mkdir(settings.home, { recursive: true, mode: 0o700 })
  const home = await mkdtemp(path.join(settings.home, 'bench-'))
  cleanup.defer('remove the folder', () => rm(home, { recursive: true, force: true }))
  const paths = createPaths(home, settings.imagesDirectory)
  cleanup.defer('remove the folder of sockets', () => rm(paths.socketRoot, { recursive: true, force: true }))
  await preparePaths(paths)
  const image = (await resolveImage('base', settings.imagesDirectory)).boot
  const driver = new TimedDriver(createDriver('qemu', {
    probeCacheFile: path.join(settings.home, 'acceleration.json'),
    probeDirectory: path.join(paths.socketRoot, 'probe'),
    probeImage: async () => image,
  }))
  const machines = new MachineStore(paths)
  const host = new SandboxHost({ driver, paths, machines, clock: systemClock, owner: ownProcessIdentity() })
  cleanup.defer('end the machines', () => host.reapWhere(() => true, { ownerMayLive: true }))
  const sandboxes = new Sandboxes({
    host, store: new SandboxStore(paths), machines, paths, clock: systemClock, caBundle: null,
    gateways: new Gateways(NO_PROXIES, () => undefined),
    catalog: new CheckpointCatalog({ checkpoints: paths.checkpoints, layers: paths.layers }),
    reserve: async (holder) => ({
      id: 'bench' as ReservationId, holder, bytes: 0, kind: 'sandbox', owner: ownProcessIdentity(), createdAt: new Date().toISOString(),
    }),
    release: async () => undefined,
    onError: (message, error) => console.error(message, error),
  })
  const scratch = path.join(home, 'scratch')
  await mkdir(scratch)
  const source = await sandboxes.create({ name: SOURCE, image: 'base', memoryMib: MEMORY_MIB, cpus: 1, egress: 'deny' })
  cleanup.defer('end the sandbox', () => sandboxes.machines.end(SOURCE))
  await runFirstCommand(source.session)
  const { manifest } = await sandboxes.checkpoints.take(SOURCE, { label: null })
  const snapshot = snapshotOf(manifest, new CheckpointCatalog({ checkpoints: paths.checkpoints, layers: paths.layers }))
  const clone = (): Promise<Sandbox> => host.clone({ snapshot, hostname: 'bench-clone', gateway: null, purpose: PURPOSE })
  const bootCommand = await readCommandLine(source.machine.handle.pid)
  const first = await clone()
  const cloneCommand = await readCommandLine(first.machine.handle.pid)
  await host.destroy(first)
  return {
    scratch, driver, sandboxes, host, source: SOURCE, checkpoint: manifest, snapshot, layers: paths.layers, bootCommand, cloneCommand,
    signal, clone,
    boot: () => host.boot({ image, shape: snapshot.shape, hostname: 'bench-boot', gateway: null, purpose: PURPOSE }),
  }
}

/** The first thing anybody does with a machine: a command that answers. */
export async function runFirstCommand(session: Pick<GuestSession, 'exec'>): Promise<void> {
  const { exit, stdout } = await runInGuest(session, { argv: ['/bin/echo', 'ready'] })
  if (exit.code !== 0 || stdout.toString() !== 'ready\n') throw new Error(`the guest answered ${JSON.stringify(stdout.toString())}`)
}

async function readCommandLine(pid: number): Promise<string[]> {
  return (await readFile(`/proc/${pid}/cmdline`, 'utf8')).split('\0').slice(0, -1)
}
