/** A machine that another build of kosa8 has started, found again by this one. */
import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { QemuDriver } from '../../src/hypervisor/qemu/qemu-driver.js'
import type { Subject } from '../conformance/driver.js'
import { makeQemuSubject } from '../conformance/qemu-subject.js'
import { SHAPE, Workbench } from '../conformance/workbench.js'

let subject: Subject
let bench: Workbench
beforeAll(async () => {
  subject = await makeQemuSubject()
  bench = await Workbench.open(subject.driver, subject.image)
})
afterAll(async () => {
  await bench.close()
  await subject.dispose()
})

it('a checkpoint of a machine found again names the processor the machine really has, and is refused where that differs', async () => {
  const program = path.join(bench.home, 'qemu')
  await writeFile(program, '#!/bin/bash\nexec qemu-system-x86_64 "${@/#max,*/max}"\n', { mode: 0o755 })
  const folder = path.join(bench.home, 'probe')
  const former = new QemuDriver({ program, probeCacheFile: folder, probeDirectory: folder, probeImage: async () => null })
  const machine = bench.keep(await former.boot({ ...bench.place(), shape: SHAPE, image: subject.image }))
  machine.detach()
  const found = bench.keep(await subject.driver.recover(machine.handle) ?? machine)
  const { snapshot } = await found.snapshot(await bench.snapshotDirectory())
  expect(snapshot.fingerprint.cpuModel).toBe('max')
  await expect(bench.clone(snapshot)).rejects.toMatchObject({ code: 'CHECKPOINT_INCOMPATIBLE' })
})
