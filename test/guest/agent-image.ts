/** The base image with the agent of this very source tree as its init. */
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import path from 'node:path'
import type { BootImage } from '../../src/hypervisor/driver.js'
import { resolveImage } from '../../src/image/store.js'
import { runProgram } from '../../src/util/spawn.js'
import { buildAgent } from './agent-under-test.js'

function imagesDirectory(): string {
  return process.env['KOSA8_IMAGES_DIR'] ?? path.join(process.env['KOSA8_HOME'] ?? path.join(homedir(), '.kosa8'), 'images')
}

/** Puts a second archive behind the image's own: the kernel unpacks both, and the later /init counts. */
export async function buildAgentImage(directory: string): Promise<BootImage> {
  const { boot } = await resolveImage('base', imagesDirectory())
  const archive = path.join(directory, 'archive')
  await mkdir(archive, { recursive: true })
  await writeFile(path.join(archive, 'init'), await readFile(await buildAgent()), { mode: 0o755 })
  const packed = await runProgram('cpio', ['-o', '-H', 'newc', '--quiet', '-D', archive], { stdin: 'init\n' })
  const first = await readFile(boot.initrd)
  const initrd = path.join(directory, 'initrd')
  await writeFile(initrd, Buffer.concat([first, Buffer.alloc((4 - (first.length % 4)) % 4), packed.stdout]))
  return { ...boot, initrd }
}
