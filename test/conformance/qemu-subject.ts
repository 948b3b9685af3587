/** The QEMU driver with the value image, as its tests use it. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { QemuDriver } from '../../src/hypervisor/qemu/qemu-driver.js'
import { buildValueImage } from './value-image.js'
import type { Subject } from './driver.js'

/** Makes a driver that keeps to TCG: what the tests prove holds whatever the acceleration. */
export function makeTcgDriver(folder: string): QemuDriver {
  return new QemuDriver({
    probeCacheFile: path.join(folder, 'probe.json'), probeDirectory: path.join(folder, 'probe'), probeImage: async () => null,
  })
}

/** The driver and an image it boots. */
export async function makeQemuSubject(): Promise<Subject> {
  const folder = await mkdtemp(path.join(tmpdir(), 'kosa8-qemu-'))
  return {
    driver: makeTcgDriver(folder),
    image: await buildValueImage(folder),
    dispose: () => rm(folder, { recursive: true }),
  }
}
