/** The base image with the value guest as its init, built once per test file. */
import { cp, mkdir, readFile, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import type { BootImage } from '../../src/hypervisor/driver.js'
import { resolveImage } from '../../src/image/store.js'
import { runProgram } from '../../src/util/spawn.js'

/** Where the set-up puts images. */
function imagesDirectory(): string {
  return process.env['KOSA8_IMAGES_DIR'] ?? path.join(process.env['KOSA8_HOME'] ?? path.join(homedir(), '.kosa8'), 'images')
}

/** Builds the image in `directory`: the kernel takes a second archive after the first, and the later /init counts. */
export async function buildValueImage(directory: string): Promise<BootImage> {
  const base = await resolveImage('base', imagesDirectory())
  const folder = path.join(directory, 'value-image')
  await mkdir(path.join(folder, 'archive'), { recursive: true })
  const source = fileURLToPath(new URL('guest/value-guest.c', import.meta.url))
  await run('cc', ['-O1', '-static', '-Wall', '-Werror', '-o', path.join(folder, 'archive', 'init'), source])
  const archive = await run('cpio', ['-o', '-H', 'newc', '--quiet', '-D', path.join(folder, 'archive')], 'init\n')
  const first = await readFile(base.boot.initrd)
  const gap = Buffer.alloc((4 - (first.length % 4)) % 4)
  await writeFile(path.join(folder, 'initrd'), Buffer.concat([first, gap, archive]))
  const rootDisk = path.join(folder, 'root.ext4')
  await writeFile(rootDisk, '')
  await run('mkfs.ext4', ['-q', '-F', rootDisk, '32M'])
  await cp(base.boot.kernel, path.join(folder, 'kernel'))
  return { kernel: path.join(folder, 'kernel'), initrd: path.join(folder, 'initrd'), rootDisk }
}

async function run(program: string, args: string[], stdin?: string): Promise<Buffer> {
  const result = await runProgram(program, args, stdin === undefined ? {} : { stdin })
  if (result.code !== 0) throw new Error(`${program} ended with ${result.code}: ${result.stderr.toString()}`)
  return result.stdout
}
