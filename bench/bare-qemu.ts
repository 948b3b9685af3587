/**
 * QEMU started by hand with the product's own command line: the floor nothing built on it can go below.
 *
 * Owns: the process and its two sockets (control, guest channel), which it gets as connected pairs. Keeps no
 * journal, has no folder, repairs no identity.
 */
import { open, rm, type FileHandle } from 'node:fs/promises'
import path from 'node:path'
import type { ChildProcess } from 'node:child_process'
import type { Duplex } from 'node:stream'
import { QmpClient } from '../src/hypervisor/qemu/qmp/client.js'
import { createLayerOverlay, newLayerName } from '../src/hypervisor/qemu/overlay.js'
import { spawnProgram } from '../src/util/spawn.js'
import type { Bed } from './bed.js'

/** Milliseconds a start may take on a busy machine. */
const ANSWER_TIMEOUT_MS = 60_000

const running = new Set<BareQemu>()

/** A QEMU process of a benchmark. */
export class BareQemu {
  private readonly ended: Promise<unknown>

  private constructor(private readonly child: ChildProcess, readonly qmp: QmpClient, readonly channel: Duplex) {
    this.ended = new Promise((resolve) => child.once('exit', resolve))
    // Until a session takes the channel, nobody else looks after its end.
    channel.on('error', () => undefined)
    running.add(this)
  }

  get pid(): number {
    return this.child.pid ?? 0
  }

  /** Starts QEMU and waits until it answers; a saved device state is loaded by then. */
  static async start(command: string[], deviceFile: string | null): Promise<BareQemu> {
    const device = deviceFile === null ? null : await open(deviceFile, 'r')
    const qemu = BareQemu.spawn(command, device)
    await device?.close()
    await qemu.qmp.negotiate(ANSWER_TIMEOUT_MS)
    await qemu.waitUntilLoaded()
    return qemu
  }

  private static spawn([program, ...args]: string[], device: FileHandle | null): BareQemu {
    const child = spawnProgram(program ?? '', args, {
      detached: true, stdio: ['ignore', 'ignore', 'inherit', device?.fd ?? 'ignore', 'pipe', 'pipe'],
    })
    // Node's types end at the fifth descriptor.
    const [qmp, channel] = [...child.stdio].slice(4) as unknown as [Duplex, Duplex]
    return new BareQemu(child, new QmpClient(qmp), channel)
  }

  private async waitUntilLoaded(): Promise<void> {
    for (;;) {
      const { status } = await this.qmp.call('query-status') as { status?: string }
      if (status !== 'inmigrate') return
    }
  }

  /** Runs a command of QEMU's human monitor. @throws Error with what it printed, which is nothing when it worked. */
  async monitor(line: string): Promise<void> {
    const printed = await this.qmp.call('human-monitor-command', { 'command-line': line })
    if (printed !== '') throw new Error(`${line}: ${String(printed)}`)
  }

  async kill(): Promise<void> {
    this.qmp.close()
    this.channel.destroy()
    this.child.kill('SIGKILL')
    await this.ended
    running.delete(this)
  }
}

/** Ends whatever is left; for the end of the benchmark. */
export async function killBareQemus(): Promise<void> {
  await Promise.all([...running].map((qemu) => qemu.kill()))
}

/** A start of the bed's checkpoint, everything that can be made before it made. */
export interface PreparedStart {
  start: () => Promise<BareQemu>
  /** Removes its overlay. */
  dispose: () => Promise<void>
}

/** Prepares a bare start of the checkpoint. */
export async function prepareBareClone(bed: Bed): Promise<PreparedStart> {
  const layer = newLayerName()
  await createLayerOverlay(bed.layers, layer, bed.snapshot.diskLayer)
  const overlay = path.join(bed.layers, layer)
  const command = bareCommand(bed.cloneCommand, { overlay, memory: { file: bed.snapshot.memoryFile } })
  return {
    start: () => BareQemu.start(command, bed.snapshot.deviceFile),
    dispose: () => rm(overlay, { force: true }),
  }
}

/** What differs from the product's own command line. */
interface Differences {
  overlay: string
  /** Guest memory: a file to map privately, or memory of its own. */
  memory: { file: string } | 'own'
}

/** The product's command line with sockets that are connected already, and other files. */
export function bareCommand(command: string[], { overlay, memory }: Differences): string[] {
  return command.map((argument) => {
    if (argument.startsWith('socket,id=')) return argument.replace(',server=on,wait=off', '')
    if (argument.startsWith('if=none,')) return argument.replace(/file=.*$/, `file=${overlay}`)
    if (!argument.startsWith('memory-backend-file,')) return argument
    if (memory === 'own') return argument.replace(/^memory-backend-file,(id=memory,size=\d+M).*$/, 'memory-backend-ram,$1')
    return argument.replace(/mem-path=[^,]*/, `mem-path=${memory.file}`)
  })
}
