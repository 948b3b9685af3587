/**
 * A machine without a processor: a guest object, real snapshot files, and an end on request.
 */
import { chmod, rm, stat, truncate, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { duplexPair, type Duplex } from 'node:stream'
import { Kosa8Error } from '../../errors/kosa8-error.js'
import { createDeferred } from '../../util/deferred.js'
import { encodeExtents, extentsFileOf, PAGE_BYTES } from '../../util/extents.js'
import { createOverlay } from '../../util/qcow2.js'
import type {
  Fingerprint, Machine, MachineExit, MachineHandle, MachineInspection, SnapshotHooks, SnapshotReport,
} from '../driver.js'
import type { FailureScript } from './failure-script.js'
import type { FakeGuest } from './fake-guest.js'

/** Size of every fake disk, bytes. */
export const FAKE_DISK_BYTES = 1024 * 1024

/** What a fake machine is made of. */
export interface FakeParts {
  handle: MachineHandle
  guest: FakeGuest
  script: FailureScript
  fingerprint: Fingerprint
  newLayerName: () => string
  onGone: () => void
}

/** A machine that lives in this process. */
export class FakeMachine implements Machine {
  handle: MachineHandle
  readonly exited: Promise<MachineExit>
  private readonly exit = createDeferred<MachineExit>()
  private channel: Duplex | null = null
  private isPaused = true
  private isEnded = false
  private queue: Promise<unknown> = Promise.resolve()

  constructor(private readonly parts: FakeParts) {
    this.handle = parts.handle
    this.exited = this.exit.promise
    parts.guest.setPaused(true)
  }

  async openChannel(): Promise<Duplex> {
    this.meet('channel')
    this.channel?.destroy()
    const [host, guest] = duplexPair()
    // Whoever closes first, the other end goes too.
    host.on('close', () => guest.destroy())
    guest.on('close', () => host.destroy())
    this.channel = host
    this.parts.guest.serve(guest)
    return host
  }

  async pause(): Promise<void> {
    this.meet('pause')
    this.setPaused(true)
  }

  async resume(): Promise<void> {
    this.meet('resume')
    this.setPaused(false)
  }

  snapshot(directory: string, hooks: SnapshotHooks = {}): Promise<SnapshotReport> {
    const turn = this.queue.then(() => this.takeSnapshot(directory, hooks))
    this.queue = turn.catch(() => undefined)
    return turn
  }

  async inspect(): Promise<MachineInspection> {
    this.meet('inspect')
    const layer = await stat(path.join(this.handle.layersDirectory, this.handle.activeLayer))
    return { isRunning: !this.isPaused, waitsForDisk: false, privateBytes: PAGE_BYTES, cpuMs: 0, activeLayerBytes: layer.blocks * 512 }
  }

  async destroy(): Promise<void> {
    if (!this.isEnded) this.parts.script.meet('destroy')
    this.end({ expected: true, message: 'destroyed' })
    const layer = path.join(this.handle.layersDirectory, this.handle.activeLayer)
    const mode = await stat(layer).then((found) => found.mode, () => 0)
    if ((mode & 0o222) !== 0) await rm(layer, { force: true })
    await rm(this.handle.directory, { recursive: true, force: true })
  }

  detach(): void {
    this.channel?.destroy()
  }

  /** Ends the machine from within, as a guest that shuts down or a process that is killed. */
  end(exit: MachineExit): void {
    if (this.isEnded) return
    this.isEnded = true
    this.channel?.destroy()
    this.parts.onGone()
    this.exit.resolve(exit)
  }

  private async takeSnapshot(directory: string, hooks: SnapshotHooks): Promise<SnapshotReport> {
    if (this.isEnded) throw this.gone()
    await hooks.beforePause?.()
    const wasPaused = this.isPaused
    this.setPaused(true)
    try {
      this.meet('snapshot')
      return await this.writeSnapshot(directory)
    } finally {
      this.setPaused(wasPaused)
      await hooks.afterResume?.()
    }
  }

  private async writeSnapshot(directory: string): Promise<SnapshotReport> {
    const { shape, image, layersDirectory, activeLayer } = this.handle
    const memoryFile = path.join(directory, 'memory')
    const deviceFile = path.join(directory, 'device')
    const state = this.parts.guest.save()
    await writeFile(memoryFile, state)
    await truncate(memoryFile, shape.memoryMib * 1024 * 1024)
    const pageCount = Math.ceil(Buffer.byteLength(state) / PAGE_BYTES)
    await writeFile(extentsFileOf(memoryFile), encodeExtents([{ firstPage: 0, pageCount }]))
    await writeFile(deviceFile, 'fake device state')
    const next = this.parts.newLayerName()
    await createOverlay(path.join(layersDirectory, next), {
      virtualBytes: FAKE_DISK_BYTES, backingName: activeLayer, backingFormat: 'qcow2',
    })
    await chmod(path.join(layersDirectory, activeLayer), 0o444)
    for (const file of [memoryFile, extentsFileOf(memoryFile), deviceFile]) await chmod(file, 0o444)
    this.handle = { ...this.handle, activeLayer: next }
    return {
      snapshot: { shape, image, fingerprint: this.parts.fingerprint, memoryFile, deviceFile, diskLayer: activeLayer },
      pauseMs: 0,
      privateBytes: pageCount * PAGE_BYTES,
    }
  }

  private setPaused(isPaused: boolean): void {
    this.isPaused = isPaused
    this.parts.guest.setPaused(isPaused)
  }

  private meet(step: Parameters<FailureScript['meet']>[0]): void {
    if (this.isEnded) throw this.gone()
    this.parts.script.meet(step)
  }

  private gone(): Kosa8Error {
    return new Kosa8Error('MACHINE_GONE', `machine ${this.handle.id} has ended`)
  }
}
