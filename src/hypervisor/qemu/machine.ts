/**
 * One live QEMU machine, as its owner uses it.
 *
 * Owns: the QMP conversation, the one channel to the guest, the order of operations that must not
 * overlap, and the end of the machine. Made by `start.ts` (new machines) and `recover.ts` (found again).
 */
import { rm, stat, truncate } from 'node:fs/promises'
import type { Socket } from 'node:net'
import path from 'node:path'
import type { Duplex } from 'node:stream'
import { Kosa8Error } from '../../errors/kosa8-error.js'
import { createDeferred } from '../../util/deferred.js'
import type {
  Fingerprint, Machine, MachineExit, MachineHandle, MachineInspection, SnapshotHooks, SnapshotReport,
} from '../driver.js'
import { CONSOLE_BYTES, CONSOLE_ID } from './command-line.js'
import { removeLayer } from './overlay.js'
import { describeEnd, MACHINE_FILE, type QemuProcess } from './process.js'
import { readCpuMs, readPrivateBytes } from './process-table.js'
import type { QmpClient } from './qmp/client.js'
import { takeSnapshot } from './snapshot.js'
import { connectIn } from './sockets.js'

/** Most of the guest's console that is quoted when a guest ends by itself, characters. */
const CONSOLE_TAIL_CHARS = 2000
/** A guest can make QEMU complain as often as it likes: a log beyond this many bytes is begun anew. */
const LOG_BYTES_MAX = 1024 * 1024
const LOG_LOOK_MS = 1_000
/** QEMU stops a machine whose write finds the host's disk full; so often it is let try again, milliseconds. */
const DISK_RETRY_MS = 1_000

/** What a machine is made of. */
export interface MachineParts {
  handle: MachineHandle
  process: QemuProcess
  qmp: QmpClient
  fingerprint: Fingerprint
  /** Whether the vCPUs stand still now. */
  isPaused: boolean
}

/** A machine run by QEMU. */
export class QemuMachine implements Machine {
  readonly exited: Promise<MachineExit>
  /** Settles when the guest has opened its end of the channel for the first time under this owner. */
  readonly guestIsUp: Promise<void>
  private current: MachineHandle
  private isPaused: boolean
  private channel: Socket | null = null
  private queue: Promise<unknown> = Promise.resolve()
  private isEnded = false
  private destroying: Promise<void> | null = null
  private consoleTail = ''
  private readonly logWatch: NodeJS.Timeout

  constructor(private readonly parts: MachineParts) {
    this.current = parts.handle
    this.isPaused = parts.isPaused
    this.exited = this.watchEnd()
    const guestUp = createDeferred<void>()
    this.guestIsUp = guestUp.promise
    parts.qmp.onEvent(({ name, data }) => {
      if (name === 'VSERPORT_CHANGE' && data['open'] === true) guestUp.resolve()
      // A guest that shut down stands still until we have read why; then its process goes too.
      if (name === 'SHUTDOWN') void this.readConsole().finally(() => parts.process.kill())
      if (name === 'BLOCK_IO_ERROR' && data['nospace'] === true && data['action'] === 'stop') this.retryLater()
    })
    void parts.qmp.lost.then(() => parts.process.kill())
    this.logWatch = setInterval(() => void this.capLog(), LOG_LOOK_MS).unref()
  }

  get handle(): MachineHandle {
    return this.current
  }

  async openChannel(): Promise<Duplex> {
    this.assertAlive()
    this.channel?.destroy()
    const channel = await connectIn(this.current.directory, MACHINE_FILE.channel).catch((cause: unknown) => {
      throw new Kosa8Error('MACHINE_GONE', `cannot reach machine ${this.current.id}`, { cause })
    })
    this.channel = channel
    return channel
  }

  pause(): Promise<void> {
    return this.inTurn(async () => {
      await this.parts.qmp.call('stop')
      this.isPaused = true
    })
  }

  resume(): Promise<void> {
    return this.inTurn(async () => {
      await this.parts.qmp.call('cont')
      this.isPaused = false
    })
  }

  snapshot(directory: string, hooks: SnapshotHooks = {}): Promise<SnapshotReport> {
    return this.inTurn(async () => {
      const { pauseMs, privateBytes, ...files } = await takeSnapshot({
        handle: this.current, qmp: this.parts.qmp, directory, hooks,
        stop: () => this.stopForSnapshot(),
        goOn: () => this.goOnAfterSnapshot(),
        switchedTo: (activeLayer) => { this.current = { ...this.current, activeLayer } },
      })
      const { shape, image } = this.current
      return { snapshot: { shape, image, fingerprint: this.parts.fingerprint, ...files }, pauseMs, privateBytes }
    })
  }

  async inspect(): Promise<MachineInspection> {
    this.assertAlive()
    const { process: { identity }, qmp } = this.parts
    const status = await qmp.call('query-status') as { status?: unknown }
    const layer = await stat(path.join(this.current.layersDirectory, this.current.activeLayer))
    const cpuMs = await readCpuMs(identity)
    if (cpuMs === null) throw this.gone()
    return {
      isRunning: status.status === 'running',
      waitsForDisk: status.status === 'io-error',
      privateBytes: await readPrivateBytes(identity.pid),
      cpuMs,
      activeLayerBytes: layer.blocks * 512,
    }
  }

  destroy(): Promise<void> {
    this.destroying ??= this.end()
    return this.destroying
  }

  detach(): void {
    clearInterval(this.logWatch)
    this.channel?.destroy()
    this.parts.qmp.close()
  }

  private async end(): Promise<void> {
    await this.parts.process.kill()
    this.detach()
    await removeLayer(this.current.layersDirectory, this.current.activeLayer)
    await rm(this.current.directory, { recursive: true, force: true })
  }

  private async watchEnd(): Promise<MachineExit> {
    const end = await this.parts.process.ended
    this.isEnded = true
    const expected = this.destroying !== null
    const message = expected ? 'destroyed' : await describeEnd(this.current.directory, end)
    this.detach()
    return { expected, message: this.consoleTail === '' ? message : `the guest shut down:\n${this.consoleTail}` }
  }

  private async readConsole(): Promise<void> {
    const text = await this.parts.qmp.call('ringbuf-read', { device: CONSOLE_ID, size: CONSOLE_BYTES })
    this.consoleTail = String(text).trim().slice(-CONSOLE_TAIL_CHARS) || 'nothing on its console'
  }

  /** QEMU appends, so it goes on at the new end. */
  private async capLog(): Promise<void> {
    const log = path.join(this.current.directory, MACHINE_FILE.log)
    const sizeBytes = await stat(log).then(({ size }) => size, () => 0)
    if (sizeBytes > LOG_BYTES_MAX) await truncate(log).catch(() => undefined)
  }

  /** The write is repeated when the machine goes on; if there is still no room it stops again, and we are told again. */
  private retryLater(): void {
    setTimeout(() => {
      void this.inTurn(async () => {
        if (!this.isPaused) await this.parts.qmp.call('cont')
      }).catch(() => undefined) // It has ended meanwhile.
    }, DISK_RETRY_MS).unref()
  }

  /** Nothing may reach the guest between the saving of its devices and of its memory. */
  private async stopForSnapshot(): Promise<void> {
    this.channel?.cork()
    if (!this.isPaused) await this.parts.qmp.call('stop')
  }

  private async goOnAfterSnapshot(): Promise<void> {
    try {
      if (!this.isPaused) await this.parts.qmp.call('cont')
    } finally {
      this.channel?.uncork()
    }
  }

  /** One operation at a time; an earlier one that failed does not stop the next. */
  private async inTurn<T>(operation: () => Promise<T>): Promise<T> {
    const turn = this.queue.then(() => {
      this.assertAlive()
      return operation()
    })
    this.queue = turn.catch(() => undefined)
    return turn
  }

  private assertAlive(): void {
    if (this.isEnded || this.destroying !== null) throw this.gone()
  }

  private gone(): Kosa8Error {
    return new Kosa8Error('MACHINE_GONE', `machine ${this.current.id} has ended`)
  }
}
