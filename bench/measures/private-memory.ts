/**
 * Private memory of clones nobody uses, over time, against bare QEMUs of the same checkpoint whose guests
 * run and which nobody uses either. All of them at the same time.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { readPrivateBytes } from '../../src/hypervisor/qemu/process-table.js'
import type { Sandbox } from '../../src/sandbox/sandbox.js'
import { prepareBareClone, type BareQemu, type PreparedStart } from '../bare-qemu.js'
import type { Bed } from '../bed.js'
import type { Series } from '../statistics.js'

const AFTER_S = [0, 5, 30]
const MIB = 1024 * 1024

/** Measures `count` of each. */
export async function measurePrivateMemory(bed: Bed, count: number): Promise<Series[]> {
  const clones: Sandbox[] = []
  const bare: { qemu: BareQemu; prepared: PreparedStart }[] = []
  for (let index = 0; index < count; index++) {
    bed.signal.throwIfAborted()
    clones.push(await bed.clone())
    const prepared = await prepareBareClone(bed)
    const qemu = await prepared.start()
    await qemu.qmp.call('cont')
    bare.push({ qemu, prepared })
  }
  const series: Series[] = []
  let passedS = 0
  for (const afterS of AFTER_S) {
    await delay((afterS - passedS) * 1000, undefined, { signal: bed.signal })
    passedS = afterS
    const inspected = await Promise.all(clones.map((clone) => clone.machine.inspect()))
    const bareBytes = await Promise.all(bare.map(({ qemu }) => readPrivateBytes(qemu.pid)))
    series.push(
      { label: `private memory after ${afterS} s: bare QEMU`, unit: 'MiB', values: bareBytes.map((bytes) => bytes / MIB) },
      { label: `private memory after ${afterS} s: clone`, unit: 'MiB', values: inspected.map(({ privateBytes }) => privateBytes / MIB) },
    )
  }
  await Promise.all(clones.map((clone) => bed.host.destroy(clone)))
  for (const { qemu, prepared } of bare) {
    await qemu.kill()
    await prepared.dispose()
  }
  return series
}
