/**
 * Which acceleration machines here can use: hardware (KVM) or QEMU's own translation (TCG).
 *
 * Owns: the decision and remembering it. A /dev/kvm may be there and never get a guest through its boot
 * (nested hosts), so a guest is really booted, saved, and restored, within a few seconds.
 */
import { constants } from 'node:fs'
import { access, mkdir, readFile, rm } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import { Kosa8Error, toKosa8Error } from '../../errors/kosa8-error.js'
import { createMachineId } from '../../model/ids.js'
import { DEFAULT_PROCESSES_MAX } from '../../model/machine-shape.js'
import { writeFileAtomic } from '../../util/atomic-write.js'
import { CleanupStack } from '../../util/cleanup.js'
import { makeFolder } from '../../util/make-folder.js'
import type { BootImage, Machine } from '../driver.js'
import { TCG_CPU_MODEL } from './command-line.js'
import { readProcessor } from './processor.js'
import { bootMachine, restoreMachine, type HostSettings } from './start.js'

/** The longest a guest may take to open its channel under KVM, where that takes a fraction of a second. */
const PROBE_TIMEOUT_MS = 8_000
const PROBE_MEMORY_MIB = 256

const answerSchema = z.object({
  accelerator: z.enum(['kvm', 'tcg']),
  /** As it stands in fingerprints: under KVM the host's own processor. */
  cpuModel: z.string(),
  /** One sentence for people. */
  reason: z.string(),
})

/** Which acceleration is used, and why. */
export type AccelerationAnswer = z.infer<typeof answerSchema>

const cacheSchema = z.object({ hostBoot: z.string(), qemuVersion: z.string(), answer: answerSchema })

/** What the probe needs. */
export interface ProbeConfig {
  probeCacheFile: string
  probeDirectory: string
  probeImage: () => Promise<BootImage | null>
  verifyClone?: ((machine: Machine) => Promise<void>) | undefined
  qemuVersion: string
  settingsFor: (answer: Pick<AccelerationAnswer, 'accelerator' | 'cpuModel'>) => HostSettings
}

/** Decides, from the remembered answer if it was found in this boot of the host with this QEMU. */
export async function probeAcceleration(config: ProbeConfig): Promise<AccelerationAnswer> {
  const denied = await access('/dev/kvm', constants.R_OK | constants.W_OK).then(() => null, toKosa8Error)
  if (denied !== null) return useTcg(`/dev/kvm cannot be used (${denied.message})`)
  const hostBoot = (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim()
  const remembered = await readCache(config.probeCacheFile)
  if (remembered?.hostBoot === hostBoot && remembered.qemuVersion === config.qemuVersion) return remembered.answer
  const image = await config.probeImage()
  if (image === null) return useTcg('KVM has not been tried: there is no image yet')
  const answer = await tryKvm(config, image)
  await writeFileAtomic(config.probeCacheFile, JSON.stringify({ hostBoot, qemuVersion: config.qemuVersion, answer }))
  return answer
}

function useTcg(reason: string): AccelerationAnswer {
  return { accelerator: 'tcg', cpuModel: TCG_CPU_MODEL, reason }
}

async function readCache(file: string): Promise<z.infer<typeof cacheSchema> | null> {
  const text = await readFile(file, 'utf8').catch(() => '')
  try {
    return cacheSchema.parse(JSON.parse(text))
  } catch {
    // Not there, or written by another version: found out again.
    return null
  }
}

async function tryKvm(config: ProbeConfig, image: BootImage): Promise<AccelerationAnswer> {
  const answer = { accelerator: 'kvm', cpuModel: `host (${(await readProcessor()).name})` } as const
  const undo = new CleanupStack()
  try {
    await bootAndClone(config, image, config.settingsFor(answer), undo)
    return { ...answer, reason: 'a guest booted, was saved and restored under KVM' }
  } catch (error) {
    return useTcg(`/dev/kvm is there, but ${toKosa8Error(error).message}`)
  } finally {
    await undo.run()
  }
}

async function bootAndClone(config: ProbeConfig, image: BootImage, host: HostSettings, undo: CleanupStack): Promise<void> {
  const root = path.join(config.probeDirectory, createMachineId())
  const layersDirectory = path.join(root, 'layers')
  const saved = path.join(root, 'saved')
  undo.defer('remove the folder of the probe', () => rm(root, { recursive: true, force: true }))
  await makeFolder(layersDirectory)
  await mkdir(saved)
  const place = (id = createMachineId()) => ({ id, directory: path.join(root, id), layersDirectory })
  const shape = { memoryMib: PROBE_MEMORY_MIB, cpus: 1, network: 'none', diskMib: null, processesMax: DEFAULT_PROCESSES_MAX } as const
  const source = await bootMachine({ ...place(), shape, image }, host)
  undo.defer('end the guest', () => source.destroy())
  await withinLimit(source.guestIsUp, 'a guest did not come up')
  const { snapshot } = await source.snapshot(saved)
  const clone = await restoreMachine({ ...place(), snapshot }, host)
  undo.defer('end the clone', () => clone.destroy())
  await clone.resume()
  await withinLimit(config.verifyClone?.(clone) ?? Promise.resolve(), 'a clone did not answer')
}

async function withinLimit(work: Promise<void>, failure: string): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const tooLate = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new Kosa8Error('TIMED_OUT', `${failure} within ${PROBE_TIMEOUT_MS / 1000} s`)), PROBE_TIMEOUT_MS)
  })
  await Promise.race([work, tooLate]).finally(() => clearTimeout(timer))
}
