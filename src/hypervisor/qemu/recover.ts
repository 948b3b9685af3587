/**
 * Finding a machine again after its owner has died, and removing what a record names.
 *
 * Owns: telling whether the process a handle names is still that process, and asking QEMU which overlay
 * it writes to now: the owner may have died between a snapshot and the storing of its new handle.
 */
import { readFile, rm } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import type { Fingerprint, MachineHandle } from '../driver.js'
import { DISK_ID } from './command-line.js'
import { QemuMachine } from './machine.js'
import { freezeLowerLayer, removeLayer } from './overlay.js'
import { adoptProcess, MACHINE_FILE } from './process.js'
import { findProcess, isAlive, killProcess, type ProcessIdentity } from './process-table.js'
import { QmpClient } from './qmp/client.js'
import { connectIn } from './sockets.js'

/** Milliseconds a live machine may take to greet its new owner; it does so at once unless another owner holds it. */
const GREETING_TIMEOUT_MS = 10_000

/**
 * Attaches to the machine a handle names; null when it is gone or its guest has shut down.
 * @throws Kosa8Error TIMED_OUT when it is there and does not answer (another owner holds it).
 */
export async function recoverMachine(handle: MachineHandle, fingerprint: Fingerprint): Promise<QemuMachine | null> {
  const identity = await findMachineProcess(handle)
  if (identity === null) return null
  const socket = await connectIn(handle.directory, MACHINE_FILE.qmp).catch(() => null)
  if (socket === null) return null
  const qmp = new QmpClient(socket)
  // Ours only once it has answered: one that is merely slow is looked for again, not ended.
  await qmp.negotiate(GREETING_TIMEOUT_MS)
  const child = await adoptProcess(identity, qmp.lost)
  if (child === null) return null
  const { status } = await qmp.call('query-status') as { status?: unknown }
  if (status === 'shutdown') {
    qmp.close()
    return null
  }
  const found = { ...handle, pid: identity.pid, pidStartTicks: identity.startTicks, activeLayer: await askActiveLayer(qmp) }
  await freezeLowerLayer(found)
  const itsOwn = await fingerprintOf(identity.pid, fingerprint)
  return new QemuMachine({ handle: found, process: child, qmp, fingerprint: itsOwn, isPaused: status !== 'running' })
}

/**
 * What the process really runs with. Another build of kosa8 may have started it: a checkpoint of it must not
 * pass for one of the processor this build would choose.
 */
async function fingerprintOf(pid: number, here: Fingerprint): Promise<Fingerprint> {
  const options = (await readFile(path.join('/proc', String(pid), 'cmdline'), 'utf8')).split('\0')
  const valueOf = (option: string): string => options[options.indexOf(option) + 1] ?? ''
  const accelerator = valueOf('-accel').startsWith('kvm') ? 'kvm' : 'tcg'
  // Under KVM the model is the host's own processor, which `here` names.
  return accelerator === 'kvm' && here.accelerator === 'kvm' ? here : { ...here, accelerator, cpuModel: valueOf('-cpu') }
}

const blockSchema = z.array(z.object({ device: z.string(), inserted: z.object({ file: z.string() }).optional() }))
const describedFileSchema = z.object({ file: z.object({ filename: z.string() }) })

async function askActiveLayer(qmp: QmpClient): Promise<string> {
  const disk = blockSchema.parse(await qmp.call('query-block')).find(({ device }) => device === DISK_ID)
  const file = disk?.inserted?.file ?? ''
  // After a switch QEMU no longer has a plain name for the disk, but a description that holds it.
  const name = file.startsWith('json:') ? describedFileSchema.parse(JSON.parse(file.slice(5))).file.filename : file
  return path.basename(name)
}

/** Ends the machine a handle names, if it runs, and removes its directory and its overlay. */
export async function reapMachine(handle: MachineHandle): Promise<void> {
  const identity = await findMachineProcess(handle)
  if (identity !== null) await killProcess(identity)
  await removeLayer(handle.layersDirectory, handle.activeLayer)
  await rm(handle.directory, { recursive: true, force: true })
}

/** The process of a handle: by pid and start time, or by its directory when its pid was never recorded. */
async function findMachineProcess(handle: MachineHandle): Promise<ProcessIdentity | null> {
  if (handle.pid === 0) return findProcess(handle.directory, handle.id)
  const identity = { pid: handle.pid, startTicks: handle.pidStartTicks }
  return await isAlive(identity) ? identity : null
}
