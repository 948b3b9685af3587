/**
 * Building images from tiny recipes (a folder instead of a Debian release) through the real steps.
 */
import { access, mkdir, mkdtemp, open, readFile, readdir, rm, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { buildImage } from '../../src/image/build.js'
import { withLock } from '../../src/image/lock.js'
import { orderModules } from '../../src/image/kernel-modules.js'
import { BuildSteps, requirePrograms, type ImageProgress } from '../../src/image/steps.js'
import { inWorkshop } from '../../src/image/workshop.js'
import { listImages, resolveImage } from '../../src/image/store.js'
import { isImageRunning, removeImages } from '../../src/image/use.js'
import { runProgram, spawnProgram } from '../../src/util/spawn.js'

const BUILD_MODULE = fileURLToPath(new URL('../../src/image/build.ts', import.meta.url))
const STEPS_MODULE = fileURLToPath(new URL('../../src/image/steps.ts', import.meta.url))
const JITI = fileURLToPath(new URL('../../node_modules/jiti/lib/jiti.mjs', import.meta.url))

let folder: string
let images: string
let recipe: Record<string, unknown>

beforeEach(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'kosa8-image-'))
  images = path.join(folder, 'images')
  await put('tree/etc/motd', 'hello\n')
  await put('kernel/boot/vmlinuz-9.9-test', 'kernel')
  await put('kernel/lib/modules.builtin', 'kernel/fs/ext4/ext4.ko\n')
  await put('kernel/lib/bottom.ko', '\0name=bottom\0depends=\0')
  await put('kernel/lib/in-between.ko', '\0depends=bottom\0name=in_between\0')
  await put('kernel/lib/top.ko', '\0depends=in-between,bottom\0name=top\0')
  await put('agent/main.c', 'int main(void) { return 0; }\n')
  recipe = {
    format: 'kosa8.recipe/1', name: 'tiny', description: 'a test image',
    source: { kind: 'tree', root: '../tree', kernel: '../kernel' },
    modules: ['top', 'ext4'], npmPackages: [],
    files: [{ path: '/etc/hostname', content: 'guest\n' }], links: [{ path: '/etc/name', target: 'hostname' }],
    disk: { sizeMib: 64 },
  }
  await putRecipe({})
})

afterEach(() => rm(folder, { recursive: true, force: true }))

async function put(name: string, content: string): Promise<void> {
  await mkdir(path.dirname(path.join(folder, name)), { recursive: true })
  await writeFile(path.join(folder, name), content)
}

async function putRecipe(changes: Record<string, unknown>): Promise<void> {
  await put('recipes/tiny.json', JSON.stringify({ ...recipe, ...changes }))
}

function build(options: { onProgress?: (progress: ImageProgress) => void, readFreeBytes?: () => Promise<number>, signal?: AbortSignal } = {}) {
  return buildImage('tiny', {
    imagesDirectory: images, recipesDirectory: path.join(folder, 'recipes'), agentDirectory: path.join(folder, 'agent'), ...options,
  })
}

async function leftovers(): Promise<string[]> {
  return (await readdir(images)).filter((name) => name.startsWith('.building-'))
}

async function debugfs(disk: string, command: string): Promise<string> {
  const script = 'PATH="$PATH:/usr/sbin:/sbin" exec debugfs -R "$1" "$2"'
  return (await runProgram('sh', ['-c', script, 'sh', command, disk])).stdout.toString()
}

test('an image holds the tree and the recipe\'s files, owned by root, and the modules in loading order', async () => {
  const { built } = await build()
  const { boot } = await resolveImage('tiny', images)
  expect(built).toBe(true)
  expect(await debugfs(boot.rootDisk, 'cat /etc/motd')).toBe('hello\n')
  expect(await debugfs(boot.rootDisk, 'cat /etc/hostname')).toBe('guest\n')
  expect(await debugfs(boot.rootDisk, 'stat /etc/hostname')).toMatch(/User: +0 +Group: +0/)
  expect(await debugfs(boot.rootDisk, 'stat /etc/name')).toContain('symlink')
  expect(await readFile(boot.kernel, 'utf8')).toBe('kernel')
  const archive = (await readFile(boot.initrd)).toString('latin1')
  expect(archive).toContain('bottom.ko\nin-between.ko\ntop.ko\n')
  expect((await listImages(images))[0]).toMatchObject({ kernelVersion: '9.9-test', rootDiskSizeBytes: 64 * 1024 * 1024 })
})

test('an image that is there is not built again, and a change of recipe, tree or agent gives another', async () => {
  const first = (await build()).image.hash
  expect((await build()).built).toBe(false)
  await putRecipe({ description: 'changed' })
  const second = (await build()).image.hash
  await put('agent/main.c', 'int main(void) { return 1; }\n')
  const third = (await build()).image.hash
  await put('tree/etc/motd', 'changed\n')
  const fourth = (await build()).image.hash
  expect(new Set([first, second, third, fourth]).size).toBe(4)
  expect((await resolveImage('tiny', images)).hash).toBe(fourth)
})

test('two builders at once build once', async () => {
  const results = await Promise.all([build(), build()])
  expect(results.map((result) => result.built).sort()).toEqual([false, true])
  expect(results[0].image).toEqual(results[1].image)
})

test('a builder that was killed leaves no image, and the next build tidies up after it', async () => {
  const options = { imagesDirectory: images, recipesDirectory: path.join(folder, 'recipes'), agentDirectory: path.join(folder, 'agent') }
  await put('builder.mjs', `import { createJiti } from ${JSON.stringify(JITI)}
    const { buildImage } = await createJiti(import.meta.url).import(${JSON.stringify(BUILD_MODULE)})
    await buildImage('tiny', { ...${JSON.stringify(options)}, onProgress: (p) => console.log(p.state, p.title) })`)
  const builder = spawnProgram(process.execPath, [path.join(folder, 'builder.mjs')], { stdio: ['ignore', 'pipe', 'inherit'] })
  const ended = new Promise((resolve) => builder.once('close', resolve))
  createInterface({ input: builder.stdout! }).on('line', (line) => {
    if (line === 'started make the root file system') builder.kill('SIGKILL')
  })
  await ended
  expect(builder.signalCode).toBe('SIGKILL')
  expect(await leftovers()).toHaveLength(1)
  await expect(resolveImage('tiny', images)).rejects.toMatchObject({ code: 'IMAGE_UNKNOWN' })
  expect((await build()).built).toBe(true)
  expect(await leftovers()).toEqual([])
})

test('the programs of a builder that was killed end with it', async () => {
  await put('builder.mjs', `import { createJiti } from ${JSON.stringify(JITI)}
    const { BuildSteps } = await createJiti(import.meta.url).import(${JSON.stringify(STEPS_MODULE)})
    const steps = new BuildSteps('tiny', (p) => p.line && console.log(p.line), undefined)
    await steps.run('wait', (step) => step.runProgram('sh', ['-c', 'echo $$; sleep 600; exit 0']))`)
  const builder = spawnProgram(process.execPath, [path.join(folder, 'builder.mjs')], { stdio: ['ignore', 'pipe', 'inherit'] })
  const pid = await new Promise<string>((resolve) => createInterface({ input: builder.stdout! }).once('line', resolve))
  await access(`/proc/${pid}`)
  builder.kill('SIGKILL')
  await expect.poll(() => access(`/proc/${pid}`).then(() => 'runs', () => 'gone'), { timeout: 20_000 }).toBe('gone')
})

test('a cancelled build leaves nothing half-built', async () => {
  const cancellation = new AbortController()
  const onProgress = ({ title }: ImageProgress): void => {
    if (title === 'make the root file system') cancellation.abort()
  }
  await expect(build({ onProgress, signal: cancellation.signal })).rejects.toMatchObject({ code: 'CANCELLED' })
  expect(await leftovers()).toEqual([])
  expect(await listImages(images)).toEqual([])
})

test('a failing step is named with the last lines its program printed, and nothing is left', async () => {
  await put('agent/main.c', 'int main(void) { return missing; }\n')
  const failure = build()
  await expect(failure).rejects.toMatchObject({
    code: 'IMAGE_BUILD_FAILED', details: { step: 'make the initial RAM file system', program: 'cc' },
  })
  await expect(failure).rejects.toHaveProperty('details.output', expect.arrayContaining([expect.stringContaining('missing')]))
  expect(await leftovers()).toEqual([])
})

test('too little free space is reported with the need before anything is started', async () => {
  await expect(build({ readFreeBytes: async () => 5 * 1024 * 1024 })).rejects.toMatchObject({
    code: 'DISK_FULL', message: expect.stringMatching(/needs 64 MiB .* 5 MiB are free/) as string,
  })
  expect(await listImages(images)).toEqual([])
})

test('a program that finds the disk full is reported as DISK_FULL, with the folder', async () => {
  const steps = new BuildSteps('tiny', () => undefined, undefined)
  const write = (): Promise<void> => steps.run('write', (step) => step.runProgram('dd', ['if=/dev/zero', 'of=/dev/full', 'count=1']))
  await expect(inWorkshop(images, steps, write))
    .rejects.toMatchObject({ code: 'DISK_FULL', message: expect.stringContaining(`${images} has `) as string, details: { step: 'write', program: 'dd' } })
})

test('every missing program is named', async () => {
  await expect(requirePrograms(['sh', 'kosa8-absent-one', 'kosa8-absent-two'])).rejects.toMatchObject({
    code: 'PROGRAM_MISSING', message: 'not installed: kosa8-absent-one, kosa8-absent-two',
  })
})

test('a kernel module that is neither there nor built in is named with what needs it', async () => {
  await put('kernel/lib/top.ko', '\0depends=absent\0')
  await expect(orderModules(path.join(folder, 'kernel'), ['top'])).rejects.toMatchObject({
    code: 'IMAGE_BUILD_FAILED', message: 'the kernel has no module absent (needed by top)',
  })
})

test('an unknown image is answered with how to build it, an unknown recipe with those there are', async () => {
  await expect(resolveImage('other', images)).rejects.toMatchObject({
    code: 'IMAGE_UNKNOWN', hint: expect.stringContaining('kosa8 image build other') as string,
  })
  await expect(buildImage('other', { imagesDirectory: images, recipesDirectory: path.join(folder, 'recipes') }))
    .rejects.toMatchObject({ code: 'IMAGE_UNKNOWN', hint: 'recipes: tiny' })
})

test('an image is not removed while a machine of anybody runs from it, and not while another is made', async () => {
  const { image } = await build()
  const disk = path.join(images, 'tiny', image.hash, 'root.ext4')
  // As a machine does: through an overlay, on a disk it may write to.
  await runProgram('qemu-img', ['create', '-q', '-f', 'qcow2', '-b', disk, '-F', 'raw', path.join(folder, 'overlay.qcow2')])
  const machine = spawnProgram('qemu-system-x86_64', [
    '-nodefaults', '-display', 'none', '-M', 'microvm', '-accel', 'tcg', '-m', '64M', '-S', '-qmp', 'stdio',
    '-drive', `if=none,id=disk,format=qcow2,file=${path.join(folder, 'overlay.qcow2')}`, '-device', 'virtio-blk-device,drive=disk',
  ], { stdio: ['pipe', 'pipe', 'inherit'] })
  const ended = new Promise((resolve) => machine.once('close', resolve))
  try {
    // The greeting comes while QEMU still opens its disks, the answer once it has all of them.
    machine.stdin!.write('{"execute":"qmp_capabilities"}\n')
    for await (const line of createInterface({ input: machine.stdout! })) if (line.includes('"return"')) break
    expect(await isImageRunning(images, image)).toBe(true)
    expect(await removeImages([image], images)).toEqual([])
    expect((await listImages(images))[0]).toEqual(image)
  } finally {
    machine.kill('SIGKILL')
    await ended
  }
  await withLock(path.join(images, '.lock'), { onWait: () => undefined }, async () => {
    await expect(removeImages([image], images)).rejects.toMatchObject({ code: 'IMAGE_IN_USE', message: expect.stringContaining('being built') as string })
  })
  expect(await removeImages([image], images)).toEqual([image])
  expect((await readdir(images)).sort()).toEqual(['.lock', '.sources'])
})

test('an image is not removed while a process has its disk open without a lock, as a machine that starts has', async () => {
  const { image } = await build()
  const disk = await open(path.join(images, 'tiny', image.hash, 'root.ext4'))
  try {
    expect(await isImageRunning(images, image)).toBe(false)
    expect(await removeImages([image], images)).toEqual([])
    expect(await listImages(images)).toEqual([image])
  } finally {
    await disk.close()
  }
  expect(await removeImages([image], images)).toEqual([image])
})
