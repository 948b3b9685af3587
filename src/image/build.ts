/**
 * Builds an image from its recipe: source, agent, initial RAM file system, root disk, manifest.
 *
 * Owns: the order of the steps and the cache by hash. Called by `main.ts`, which `cli` and setup.mjs start, and by
 * `import/`, which takes kernel and agent from a built image.
 */
import { copyFile, mkdir, readdir, stat } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { writeInitramfs } from './initramfs.js'
import { orderModules } from './kernel-modules.js'
import { hashImage, hashSource, readRecipe, type Recipe } from './recipe.js'
import { buildRootDisk, readPackages } from './root-disk.js'
import { ensureSource, hasSource, pruneSources } from './source.js'
import { BuildSteps, requirePrograms, type ImageProgress } from './steps.js'
import { IMAGE_FILES, listImages, readManifest, type ImageManifest } from './store.js'
import { checkFreeSpace, commitImage, inWorkshop, makeWorkFolder, readFreeBytes, type ReadFreeBytes } from './workshop.js'

/** Where to build, and whom to tell. */
export interface BuildImageOptions {
  imagesDirectory: string
  /** Folder with the recipes; the package's own by default. */
  recipesDirectory?: string
  /** Folder with the guest agent's C sources; the package's own by default. */
  agentDirectory?: string
  onProgress?: (progress: ImageProgress) => void
  signal?: AbortSignal
  /** Bytes an ordinary user may still write below a folder; asks the file system by default. */
  readFreeBytes?: ReadFreeBytes
}

/** What a build gave; `built` is false when the image was there already. */
export interface BuiltImage {
  built: boolean
  image: ImageManifest
}

const MIB = 1024 * 1024
/** A Debian source needs its unpacked tree, the kernel and both archives at the same time. */
const DEBIAN_NEED_BYTES = 1200 * MIB
/** An image needs the unpacked tree, its layer and the root disk at the same time. */
const IMAGE_NEED_BYTES = 800 * MIB
/** Folders that are built from; the tests' are so small that only a full disk stops them. */
const TREE_NEED_BYTES = 64 * MIB

interface Plan {
  recipe: Recipe
  recipesDirectory: string
  agentFiles: string[]
  sourceHash: string
  hash: string
}

/**
 * Builds the newest image of that name unless it is there already.
 * @throws Kosa8Error IMAGE_UNKNOWN, CONFIG_INVALID, PROGRAM_MISSING, DISK_FULL, IMAGE_BUILD_FAILED (with
 *   `details.step` and the last lines printed in `details.output`), CANCELLED.
 */
export async function buildImage(name: string, options: BuildImageOptions): Promise<BuiltImage> {
  const imagesDirectory = path.resolve(options.imagesDirectory)
  const plan = await planImage(name, options)
  const present = await readManifest(imagesDirectory, name, plan.hash)
  if (present !== null) return { built: false, image: present }
  await requirePrograms(neededPrograms(plan.recipe))
  const steps = new BuildSteps(name, options.onProgress ?? (() => undefined), options.signal)
  return inWorkshop(imagesDirectory, steps, async () => {
    const meanwhile = await readManifest(imagesDirectory, name, plan.hash)
    if (meanwhile !== null) return { built: false, image: meanwhile }
    await checkFreeSpace(imagesDirectory, await neededBytes(plan, imagesDirectory), options.readFreeBytes ?? readFreeBytes)
    return { built: true, image: await carryOut(plan, imagesDirectory, steps) }
  })
}

async function planImage(name: string, options: BuildImageOptions): Promise<Plan> {
  const recipesDirectory = options.recipesDirectory ?? await packageFolder('guest/images')
  const recipe = await readRecipe(name, recipesDirectory)
  const agentFiles = await listAgentFiles(options.agentDirectory ?? await packageFolder('guest/agent'))
  const sourceHash = await hashSource(recipe.source, recipesDirectory)
  return { recipe, recipesDirectory, agentFiles, sourceHash, hash: await hashImage(recipe, sourceHash, agentFiles) }
}

/** A folder of this package, from the sources as well as from the compiled files. */
export async function packageFolder(name: string): Promise<string> {
  let folder = path.dirname(fileURLToPath(import.meta.url))
  while (await stat(path.join(folder, 'package.json')).catch(() => null) === null) {
    if (folder === path.dirname(folder)) throw new Kosa8Error('INTERNAL', 'cannot find the package this file belongs to')
    folder = path.dirname(folder)
  }
  return path.join(folder, name)
}

async function listAgentFiles(folder: string): Promise<string[]> {
  const names = (await readdir(folder).catch(() => [])).filter((name) => /\.[ch]$/.test(name)).sort()
  if (!names.some((name) => name.endsWith('.c'))) {
    throw new Kosa8Error('IMAGE_BUILD_FAILED', `there is no source of the guest agent in ${folder}`, {
      hint: 'install the package again, it is not complete',
    })
  }
  return names.map((name) => path.join(folder, name))
}

function neededPrograms(recipe: Recipe): string[] {
  return [
    'cc', 'flock', 'mke2fs', 'tar', 'zstd',
    ...(recipe.source.kind === 'debian' ? ['mmdebstrap'] : []),
    ...(recipe.npmPackages.length > 0 ? ['npm'] : []),
    ...(process.getuid?.() === 0 ? [] : ['fakeroot', ...(recipe.source.kind === 'debian' ? ['newuidmap'] : [])]),
  ]
}

async function neededBytes(plan: Plan, imagesDirectory: string): Promise<number> {
  if (plan.recipe.source.kind === 'tree') return TREE_NEED_BYTES
  return IMAGE_NEED_BYTES + (await hasSource(imagesDirectory, plan.sourceHash) ? 0 : DEBIAN_NEED_BYTES)
}

async function carryOut(plan: Plan, imagesDirectory: string, steps: BuildSteps): Promise<ImageManifest> {
  const { recipe } = plan
  const { workFolder, result } = await makeWorkFolder(imagesDirectory, 0o755)
  const archives = await ensureSource({
    source: recipe.source, hash: plan.sourceHash, imagesDirectory, recipesDirectory: plan.recipesDirectory, workFolder, steps,
  })
  const kernelVersion = await steps.run('make the initial RAM file system', async (step) => {
    const agent = path.join(workFolder, 'agent')
    const sources = plan.agentFiles.filter((file) => file.endsWith('.c'))
    await step.runProgram('cc', ['-static', '-O2', '-Wall', '-Wextra', '-Werror', '-o', agent, ...sources])
    const kernelFolder = path.join(workFolder, 'kernel')
    await mkdir(kernelFolder)
    await step.runProgram('tar', ['--use-compress-program=zstd', '--no-same-owner', '-xf', archives.kernel, '-C', kernelFolder])
    const modules = await orderModules(kernelFolder, recipe.modules)
    await writeInitramfs(path.join(result, IMAGE_FILES.initrd), agent, modules)
    return takeKernel(kernelFolder, path.join(result, IMAGE_FILES.kernel))
  })
  await buildRootDisk(recipe, archives.root, path.join(result, IMAGE_FILES.rootDisk), workFolder, steps)
  return steps.run('put the image in place', async () => {
    const manifest = await describeImage(plan, result, kernelVersion, await readPackages(workFolder))
    await commitImage(result, imagesDirectory, manifest)
    await pruneSources(imagesDirectory, new Set((await listImages(imagesDirectory)).map((image) => image.source)))
    return manifest
  })
}

async function takeKernel(folder: string, target: string): Promise<string> {
  const files = await readdir(folder, { recursive: true })
  const kernel = files.find((file) => /^vmlinuz(-|$)/.test(path.basename(file)))
  if (kernel === undefined) throw new Kosa8Error('IMAGE_BUILD_FAILED', 'the kernel package has no vmlinuz')
  await copyFile(path.join(folder, kernel), target)
  return path.basename(kernel).replace(/^vmlinuz-?/, '') || 'unknown'
}

async function describeImage(
  plan: Plan, folder: string, kernelVersion: string, packages: Record<string, string>,
): Promise<ImageManifest> {
  const [kernel, initrd, rootDisk] = await Promise.all(
    [IMAGE_FILES.kernel, IMAGE_FILES.initrd, IMAGE_FILES.rootDisk].map((name) => stat(path.join(folder, name))))
  for (const item of plan.recipe.npmPackages) packages[`npm:${item.name}`] = item.version
  return {
    format: 'kosa8.image/1',
    name: plan.recipe.name,
    hash: plan.hash,
    description: plan.recipe.description,
    createdAt: new Date().toISOString(),
    source: plan.sourceHash,
    kernelVersion,
    packages,
    sizes: { kernelBytes: kernel!.size, initrdBytes: initrd!.size, rootDiskBytes: rootDisk!.blocks * 512 },
    rootDiskSizeBytes: rootDisk!.size,
  }
}
