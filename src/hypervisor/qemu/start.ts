/**
 * Starting a machine, from an image or from a snapshot.
 *
 * Owns: the order of the steps and undoing them. The caller's record is written before the process is
 * started and again before the guest can run, so that a crash at any point leaves a trace to reap by.
 */
import { link, realpath, rm } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { Kosa8Error, toKosa8Error } from '../../errors/kosa8-error.js'
import { CleanupStack } from '../../util/cleanup.js'
import { extentsFileOf } from '../../util/extents.js'
import { makeFolder } from '../../util/make-folder.js'
import type { BootConfig, Fingerprint, MachineHandle, MachineSnapshot, RestoreConfig } from '../driver.js'
import { buildCommandLine, type Acceleration } from './command-line.js'
import { QemuMachine } from './machine.js'
import { createMemoryFile } from './memory-file.js'
import { createBaseOverlay, createLayerOverlay, newLayerName, removeLayer } from './overlay.js'
import { describeEnd, MACHINE_FILE, spawnQemu, type QemuProcess } from './process.js'
import { QmpClient } from './qmp/client.js'
import { connectIn } from './sockets.js'

/** Milliseconds QEMU may take from its start to its first answer, on a machine that is busy. */
const ANSWER_TIMEOUT_MS = 30_000

/** How this host runs QEMU. */
export interface HostSettings {
  program: string
  searchPath: string
  version: { major: number; minor: number }
  acceleration: Acceleration
  translationBufferMib: number
  tscKhz: number | null
  fingerprint: Fingerprint
}

/** Boots a machine; it runs when this resolves. */
export async function bootMachine(config: BootConfig, host: HostSettings): Promise<QemuMachine> {
  const machine = await startMachine({ ...config, parent: null }, host)
  await machine.resume()
  return machine
}

/** Builds a machine from a snapshot; it is paused when this resolves. */
export async function restoreMachine(config: RestoreConfig, host: HostSettings): Promise<QemuMachine> {
  const { snapshot, ...rest } = config
  return startMachine({ ...rest, shape: snapshot.shape, image: snapshot.image, parent: snapshot }, host)
}

type StartConfig = BootConfig & { parent: MachineSnapshot | null }

async function startMachine(config: StartConfig, host: HostSettings): Promise<QemuMachine> {
  const undo = new CleanupStack()
  try {
    undo.defer('remove the directory', () => rm(config.directory, { recursive: true, force: true }))
    await makeFolder(config.directory, 0o700)
    const planned = await planHandle(config)
    await config.onSpawned?.(planned)
    undo.defer('remove the overlay', () => removeLayer(config.layersDirectory, planned.activeLayer))
    await prepareFiles(planned)
    const child = await spawnQemu({
      program: host.program,
      searchPath: host.searchPath,
      args: buildArguments(planned, host),
      directory: planned.directory,
      deviceFile: config.parent?.deviceFile ?? null,
    })
    undo.defer('end the process', () => child.kill())
    const handle = { ...planned, pid: child.identity.pid, pidStartTicks: child.identity.startTicks }
    const [qmp] = await Promise.all([converse(handle, child), config.onSpawned?.(handle)])
    return new QemuMachine({ handle, process: child, qmp, fingerprint: host.fingerprint, isPaused: true })
  } catch (error) {
    await undo.run()
    throw nameFailure(error, config)
  }
}

async function planHandle({ id, directory, layersDirectory, shape, image, parent }: StartConfig): Promise<MachineHandle> {
  const place = await realpath(directory)
  return {
    version: 1, driver: 'qemu', id, pid: 0, pidStartTicks: 0, directory: place, layersDirectory, shape, image,
    memoryFile: path.join(place, MACHINE_FILE.memory), activeLayer: newLayerName(), parent,
  }
}

async function prepareFiles({ shape, image, layersDirectory, activeLayer, memoryFile, parent }: MachineHandle): Promise<void> {
  if (parent === null) {
    await createMemoryFile(memoryFile, shape.memoryMib * 1024 * 1024)
    await createBaseOverlay(layersDirectory, activeLayer, image.rootDisk, shape.diskMib)
    return
  }
  // A name of its own for the snapshot's memory: it stays readable when the checkpoint is removed.
  await link(parent.memoryFile, memoryFile)
  await link(extentsFileOf(parent.memoryFile), extentsFileOf(memoryFile))
  await createLayerOverlay(layersDirectory, activeLayer, parent.diskLayer)
}

function buildArguments(handle: MachineHandle, host: HostSettings): string[] {
  return buildCommandLine({
    name: handle.id,
    shape: handle.shape,
    image: handle.image,
    memoryFile: handle.memoryFile,
    activeLayer: path.join(handle.layersDirectory, handle.activeLayer),
    acceleration: host.acceleration,
    translationBufferMib: host.translationBufferMib,
    tscKhz: host.tscKhz,
    isRestore: handle.parent !== null,
    version: host.version,
  })
}

/** Connects, negotiates, and waits until a saved device state is loaded. */
async function converse(handle: MachineHandle, child: QemuProcess): Promise<QmpClient> {
  const qmp = new QmpClient(await connectIn(handle.directory, MACHINE_FILE.qmp))
  try {
    await qmp.negotiate(ANSWER_TIMEOUT_MS)
    if (handle.parent !== null) await waitUntilLoaded(qmp)
    return qmp
  } catch (error) {
    const isTooLate = Kosa8Error.isInstance(error) && error.code === 'TIMED_OUT'
    qmp.close()
    if (isTooLate) throw error
    await child.kill()
    const message = await describeEnd(handle.directory, await child.ended)
    throw new Kosa8Error('MACHINE_START_FAILED', `QEMU did not start: ${message}`, { cause: error })
  }
}

async function waitUntilLoaded(qmp: QmpClient): Promise<void> {
  let stopListening = (): void => undefined
  const settled = new Promise<void>((resolve) => {
    stopListening = qmp.onEvent(({ name, data }) => {
      if (name === 'MIGRATION' && (data['status'] === 'completed' || data['status'] === 'failed')) resolve()
    })
  })
  try {
    if (await isLoading(qmp)) {
      await Promise.race([settled, qmp.lost.then((reason) => Promise.reject(reason)), delay(ANSWER_TIMEOUT_MS, undefined, { ref: false })])
    }
    if (await isLoading(qmp)) throw new Kosa8Error('MACHINE_START_FAILED', 'the saved device state could not be loaded')
  } finally {
    stopListening()
  }
}

async function isLoading(qmp: QmpClient): Promise<boolean> {
  const { status } = await qmp.call('query-status') as { status?: unknown }
  return status === 'inmigrate'
}

function nameFailure(thrown: unknown, { id }: StartConfig): Kosa8Error {
  const error = toKosa8Error(thrown)
  if (error.code !== 'INTERNAL' && error.code !== 'MACHINE_GONE') return error
  return new Kosa8Error('MACHINE_START_FAILED', `machine ${id} could not be started: ${error.message}`, { cause: error })
}
