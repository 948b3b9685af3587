import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { createDriver } from '../../src/hypervisor/registry.js'
import { describeDriver } from './driver.js'

describeDriver('fake', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'kosa8-fake-'))
  const rootDisk = path.join(folder, 'root.ext4')
  await writeFile(rootDisk, '')
  return {
    driver: createDriver('fake', {}),
    image: { kernel: '/none', initrd: '/none', rootDisk },
    dispose: () => rm(folder, { recursive: true }),
  }
})
