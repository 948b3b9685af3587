/**
 * From the request for a clone to the reply of its first command, identity repaired, in phases; against a
 * bare QEMU start of the same checkpoint, against `-loadvm`, against a cold boot. All in turn.
 */
import { rm } from 'node:fs/promises'
import path from 'node:path'
import { openGuestSession } from '../../src/guest/agent-session.js'
import { createBaseOverlay, newLayerName } from '../../src/hypervisor/qemu/overlay.js'
import { BareQemu, bareCommand, prepareBareClone } from '../bare-qemu.js'
import { runFirstCommand, type Bed } from '../bed.js'
import type { Series } from '../statistics.js'

/** How often the expensive ways are measured, once in so many clones. */
const LOADVM_EVERY = 3
const BOOT_EVERY = 6
const SNAPSHOT_NAME = 'bench'

const PHASES = ['record', 'files and spawn', 'load', 'channel and hello', 'identity', 'first command'] as const

/** Measures `samples` clones. */
export async function measureClone(bed: Bed, samples: number): Promise<Series[]> {
  const series = new Map<string, number[]>()
  const add = (label: string, value: number): void => void series.set(label, [...series.get(label) ?? [], value])
  const saved = await saveInDisk(bed)
  add('savevm: pause', saved.pauseMs)
  try {
    for (let sample = 0; sample < samples; sample++) {
      bed.signal.throwIfAborted()
      // Turns change places, so that neither always follows the other.
      const turns = [() => measureFloor(bed, add), () => measureOneClone(bed, add)]
      for (const turn of sample % 2 === 0 ? turns : turns.reverse()) await turn()
      if (sample % LOADVM_EVERY === 0) add('loadvm: start to first command', await saved.load())
      if (sample % BOOT_EVERY === 0) add('cold boot: request to first command', await measureBoot(bed))
    }
  } finally {
    await saved.dispose()
  }
  return [...series].map(([label, values]) => ({ label, unit: 'ms', values }))
}

type Add = (label: string, value: number) => void

async function measureFloor(bed: Bed, add: Add): Promise<void> {
  const prepared = await prepareBareClone(bed)
  const startedAt = performance.now()
  const qemu = await prepared.start()
  add('bare QEMU: spawn to loaded', performance.now() - startedAt)
  await qemu.kill()
  await prepared.dispose()
}

async function measureOneClone(bed: Bed, add: Add): Promise<void> {
  const startedAt = performance.now()
  const clone = await bed.clone()
  const clonedAt = performance.now()
  await runFirstCommand(clone.session)
  const endedAt = performance.now()
  const marks = bed.driver.lastRestore
  if (marks === null) throw new Error('the clone was not made by the driver')
  const { startMs, identityMs } = clone.timings
  const helloMs = startMs - (marks.loaded - marks.called)
  const phases = [
    marks.recorded - startedAt, marks.spawned - marks.recorded, marks.loaded - marks.spawned, helloMs, identityMs, endedAt - clonedAt,
  ]
  phases.forEach((ms, index) => add(`clone phase: ${PHASES[index]}`, ms))
  add('clone: request to first command', endedAt - startedAt)
  const secondAt = performance.now()
  await runFirstCommand(clone.session)
  add('clone: second command', performance.now() - secondAt)
  await bed.host.destroy(clone)
}

async function measureBoot(bed: Bed): Promise<number> {
  const startedAt = performance.now()
  const sandbox = await bed.boot()
  await runFirstCommand(sandbox.session)
  const ms = performance.now() - startedAt
  await bed.host.destroy(sandbox)
  return ms
}

/** What a user would do without us: the same guest, saved into its own disk by QEMU. */
async function saveInDisk(bed: Bed): Promise<{ pauseMs: number; load(): Promise<number>; dispose(): Promise<void> }> {
  const layer = newLayerName()
  await createBaseOverlay(bed.layers, layer, bed.snapshot.image.rootDisk, null)
  const overlay = path.join(bed.layers, layer)
  const command = bareCommand(bed.bootCommand, { overlay, memory: 'own' })
  const qemu = await BareQemu.start(command, null)
  await qemu.qmp.call('cont')
  await runFirstCommand(await openGuestSession(qemu.channel, { helloTimeoutMs: 90_000 }))
  const savedAt = performance.now()
  await qemu.monitor(`savevm ${SNAPSHOT_NAME}`)
  const pauseMs = performance.now() - savedAt
  await qemu.kill()
  const loading = [...command.filter((argument) => argument !== '-S'), '-loadvm', SNAPSHOT_NAME]
  return {
    pauseMs,
    load: async () => {
      const startedAt = performance.now()
      const loaded = await BareQemu.start(loading, null)
      await runFirstCommand(await openGuestSession(loaded.channel))
      const ms = performance.now() - startedAt
      await loaded.kill()
      return ms
    },
    dispose: () => rm(overlay, { force: true }),
  }
}
