/**
 * Taking a snapshot of a machine that goes on running afterwards.
 *
 * Owns: the order of the steps. Before the pause: a short chain of overlays, room on the disk, a copy of the memory
 * the machine started from, and an empty overlay. In the pause: device state, the pages the machine has written since, and the switch of the
 * disk to the new overlay. A failure undoes what was made; the machine runs on either way.
 */
import { chmod, open, rm } from 'node:fs/promises'
import path from 'node:path'
import { Kosa8Error, toKosa8Error } from '../../errors/kosa8-error.js'
import { describeDiskFull, DISK_MARGIN_BYTES, isDiskFull, requireFreeSpace } from '../../util/disk-space.js'
import { extentsFileOf, PAGE_BYTES, type Extent } from '../../util/extents.js'
import type { MachineHandle, SnapshotHooks } from '../driver.js'
import { DISK_ID } from './command-line.js'
import { copyMemoryFile, readExtents, shareMemoryFile, writeExtents } from './memory-file.js'
import { createLayerOverlay, freezeLayer, newLayerName, removeLayer } from './overlay.js'
import { PrivatePages } from './private-pages.js'
import type { QmpClient } from './qmp/client.js'
import { shortenChain } from './shorten-chain.js'

/** What a snapshot is taken of, and how the machine is stopped meanwhile. */
export interface SnapshotTask {
  handle: MachineHandle
  qmp: QmpClient
  /** Folder for memory and device files. */
  directory: string
  hooks: SnapshotHooks
  /** Stops the vCPUs and holds back what the host sends to the guest. */
  stop(): Promise<void>
  /** Undoes `stop`; leaves a machine alone that was paused before. */
  goOn(): Promise<void>
  /** The machine writes to layer `name` from now on. */
  switchedTo(name: string): void
}

/** What was written. */
export interface SnapshotFiles {
  memoryFile: string
  deviceFile: string
  /** The overlay that was active until now; frozen. */
  diskLayer: string
  pauseMs: number
  privateBytes: number
}

/**
 * Takes the snapshot.
 * @throws Kosa8Error CHECKPOINT_FAILED, DISK_FULL, MACHINE_GONE; no file is left then.
 */
export async function takeSnapshot(task: SnapshotTask): Promise<SnapshotFiles> {
  const { layersDirectory, activeLayer: diskLayer } = task.handle
  const memoryFile = path.join(task.directory, 'memory')
  const deviceFile = path.join(task.directory, 'device')
  const files = [memoryFile, extentsFileOf(memoryFile), deviceFile]
  const nextLayer = newLayerName()
  let nextIsActive = false
  let neededBytes = DISK_MARGIN_BYTES
  try {
    await shortenChain(task)
    const baseExtents = await readExtents(task.handle.memoryFile, memoryBytesOf(task.handle))
    await copyBase(task, memoryFile, (bytes) => { neededBytes = bytes }, countBytes(baseExtents))
    await createLayerOverlay(layersDirectory, nextLayer, diskLayer)
    const { extents, pauseMs } = await copyInPause(task, { memoryFile, deviceFile, nextLayer }, () => {
      nextIsActive = true
      task.switchedTo(nextLayer)
    })
    await writeExtents(memoryFile, [...baseExtents, ...extents])
    await Promise.all([freezeLayer(layersDirectory, diskLayer), ...files.map((file) => chmod(file, 0o444))])
    return { memoryFile, deviceFile, diskLayer, pauseMs, privateBytes: countBytes(extents) }
  } catch (error) {
    const failure = await nameFailure(error, task.directory, neededBytes)
    await Promise.all(files.map((file) => rm(file, { force: true })))
    // Once switched, both overlays carry the running machine's disk; before, nobody knows the new one.
    if (nextIsActive) await freezeLayer(layersDirectory, diskLayer)
    else await removeLayer(layersDirectory, nextLayer)
    throw failure
  }
}

/**
 * Makes the memory file as it was when the machine started, if there is room for that and for what it has written since.
 * @throws Kosa8Error DISK_FULL before anything is written.
 */
async function copyBase(task: SnapshotTask, memoryFile: string, onNeeded: (bytes: number) => void, baseBytes: number): Promise<void> {
  const { handle, directory } = task
  const isShared = await shareMemoryFile(handle.memoryFile, memoryFile)
  const pages = await PrivatePages.open(handle.pid, handle.memoryFile, memoryBytesOf(handle))
  const privateBytes = await Promise.resolve().then(() => pages.countBytes()).finally(() => pages.close())
  const neededBytes = (isShared ? 0 : baseBytes) + privateBytes + DISK_MARGIN_BYTES
  onNeeded(neededBytes)
  await requireFreeSpace({ what: 'the snapshot', folder: directory, neededBytes, kept: 'the machine goes on' })
  if (!isShared) await copyMemoryFile(handle.memoryFile, memoryFile, memoryBytesOf(handle))
}

interface PauseTargets {
  memoryFile: string
  deviceFile: string
  nextLayer: string
}

async function copyInPause(
  task: SnapshotTask, targets: PauseTargets, onSwitched: () => void,
): Promise<{ extents: Extent[]; pauseMs: number }> {
  const target = await open(targets.memoryFile, 'r+')
  const pages = await PrivatePages.open(task.handle.pid, task.handle.memoryFile, memoryBytesOf(task.handle))
    .catch((error: unknown) => target.close().then(() => Promise.reject(error as Error)))
  try {
    await task.hooks.beforePause?.()
    const start = performance.now()
    let pauseMs = 0
    let extents: Extent[] = []
    try {
      await task.stop()
      await task.qmp.call('xen-save-devices-state', { filename: targets.deviceFile })
      // QEMU is asked first and works on the disk while we copy; both have ended before the machine goes on.
      const switching = switchDisk(task, targets.nextLayer).then(onSwitched)
      const [copied] = await Promise.allSettled([pages.copyTo(target), switching])
      await switching
      if (copied.status === 'rejected') throw copied.reason
      extents = copied.value
    } finally {
      await task.goOn()
      pauseMs = performance.now() - start
      await task.hooks.afterResume?.()
    }
    return { extents, pauseMs }
  } finally {
    await Promise.all([target.close(), pages.close()])
  }
}

async function switchDisk({ qmp, handle }: SnapshotTask, nextLayer: string): Promise<void> {
  await qmp.call('blockdev-snapshot-sync', {
    device: DISK_ID, mode: 'existing', format: 'qcow2', 'snapshot-file': path.join(handle.layersDirectory, nextLayer),
  })
}

function memoryBytesOf({ shape }: MachineHandle): number {
  return shape.memoryMib * 1024 * 1024
}

function countBytes(extents: readonly Extent[]): number {
  return extents.reduce((sum, { pageCount }) => sum + pageCount * PAGE_BYTES, 0)
}

/** What QEMU or the file system said becomes a failed checkpoint; full disks and lost machines stay what they are. */
async function nameFailure(thrown: unknown, directory: string, neededBytes: number): Promise<Kosa8Error> {
  const error = toKosa8Error(thrown)
  if (error.code === 'DISK_FULL' && error.details['neededBytes'] !== undefined) return error
  const isQemus = error.code === 'MACHINE_PROTOCOL'
  // QEMU says no more than "IO error" of a device state it could not write.
  if (error.code === 'DISK_FULL' || (isQemus && await isDiskFull(directory))) {
    return describeDiskFull({ what: 'the snapshot', folder: directory, neededBytes, kept: 'the machine goes on' }, error)
  }
  if (!isQemus && error.code !== 'INTERNAL') return error
  return new Kosa8Error('CHECKPOINT_FAILED', `the checkpoint could not be taken: ${error.message}`, { cause: error })
}
