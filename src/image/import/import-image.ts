/**
 * Makes a sandbox image of a container image: the files of its layers with the kernel and the agent of our base image.
 *
 *   look at the archive → base image → open → read the layers into a tree → complete the tree → write it as one archive → root disk → in place
 *
 * Owns: this order, what is added to the tree, and how large the disk is. Nothing of the archive is executed, and
 * nothing is written outside the build's folder. Called by `main.ts`.
 */
import { createHash } from 'node:crypto'
import { copyFile, constants, stat } from 'node:fs/promises'
import path from 'node:path'
import { Kosa8Error } from '../../errors/kosa8-error.js'
import { buildImage, packageFolder, type BuildImageOptions } from '../build.js'
import { imageNameSchema, listRecipes, readRecipe } from '../recipe.js'
import { BYTES_PER_INODE, buildDiskOfArchive } from '../root-disk.js'
import { BuildSteps, requirePrograms } from '../steps.js'
import { IMAGE_FILES, imageFolder, readManifest, type ImageManifest } from '../store.js'
import { checkFreeSpace, commitImage, inWorkshop, makeWorkFolder, readFreeBytes } from '../workshop.js'
import { checkArchive } from './check-archive.js'
import { openArchive, type ImageArchive } from './archive.js'
import { readContainerImage, type ContainerImage } from './image-manifest.js'
import { readLayer } from './layer.js'
import { LIMITS, printable, refuseTooMuch } from './refuse.js'
import { listTree, writeAfterthoughts, writeRootArchive, type TreeListing } from './root-archive.js'
import { LayerTree } from './tree.js'

/** What to import, and how. */
export interface ImportImageOptions extends BuildImageOptions {
  /** Name of the image; by default made of the container image's own. */
  name?: string | undefined
  /** Size of the disk as guests see it, MiB; by default what the files need and room to work, at least 8 GiB. */
  diskMib?: number | undefined
}

/** What an import gave; `imported` is false when the image was there already. */
export interface ImportedImage {
  imported: boolean
  image: ImageManifest
  /** What a user should know about it, a sentence each. */
  notes: string[]
}

/** Raised when the same archive would no longer give the same image. */
const IMPORTER_VERSION = 1
const BASE_IMAGE = 'base'
const MIB = 1024 * 1024
const DISK_MIB_DEFAULT = 8192
/** The guest changes files, so a disk without any room is of no use. */
const ROOM_MIB_MIN = 64
/** Folders the agent mounts something on before anything else can run: real ones, and empty. */
const MOUNT_POINTS = { dev: 0o755, proc: 0o555, sys: 0o555, run: 0o755 }
/** Folders without which no command can start. */
const NEEDED_FOLDERS = { etc: 0o755, root: 0o700, tmp: 0o1777 }
/** Where the agent looks for the variables that every command gets. */
const ENVIRONMENT_FILE = '/etc/kosa8/environment'
const PATH_DEFAULT = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

/**
 * Imports an archive of `docker save`, or an OCI image layout, as a tar archive or a folder.
 * @throws Kosa8Error USAGE, IMAGE_ARCHIVE_INVALID, DISK_FULL, CANCELLED, and whatever building the base image throws.
 */
export async function importImage(file: string, options: ImportImageOptions): Promise<ImportedImage> {
  const imagesDirectory = path.resolve(options.imagesDirectory)
  const recipesDirectory = options.recipesDirectory ?? await packageFolder('guest/images')
  if (options.name !== undefined) await requireFreeName(options.name, recipesDirectory)
  await checkArchive(file)
  const steps = new BuildSteps(options.name ?? path.basename(file), options.onProgress ?? (() => undefined), options.signal)
  await requirePrograms(['flock', 'mke2fs', 'tar', 'zstd', ...(process.getuid?.() === 0 ? [] : ['fakeroot'])])
  const base = (await buildImage(BASE_IMAGE, options)).image
  return inWorkshop(imagesDirectory, steps, async () => {
    const { workFolder, result } = await makeWorkFolder(imagesDirectory, 0o700)
    const archive = await steps.run('open the archive', () => openArchive(file, workFolder, options.signal))
    try {
      const image = await readContainerImage(archive)
      const name = options.name ?? await defaultName(image, file, recipesDirectory)
      const hash = hashOf({ name, digest: image.digest, base: base.hash, diskMib: options.diskMib ?? null })
      const present = await readManifest(imagesDirectory, name, hash)
      if (present !== null) return { imported: false, image: present, notes: [] }
      const work: Import = { file, archive, image, name, hash, base, imagesDirectory, recipesDirectory, workFolder, result, steps, options }
      return await carryOut(work)
    } finally {
      await archive.close()
    }
  })
}

interface Import {
  file: string
  archive: ImageArchive
  image: ContainerImage
  name: string
  hash: string
  base: ImageManifest
  imagesDirectory: string
  recipesDirectory: string
  workFolder: string
  result: string
  steps: BuildSteps
  options: ImportImageOptions
}

async function carryOut(work: Import): Promise<ImportedImage> {
  const { archive, image, imagesDirectory, workFolder, result, steps, options } = work
  const tree = await steps.run('read the layers', async (step) => {
    const merged = new LayerTree()
    const budget = { leftBytes: LIMITS.unpackedBytes }
    for (const [at, layer] of image.layers.entries()) {
      step.tell(`layer ${at + 1} of ${image.layers.length}`)
      await readLayer({
        archive, layer, number: at + 1, budget, signal: options.signal,
        onEntry: (entry, index) => merged.add(entry, at + 1, index),
      })
    }
    return merged
  })
  const { notes, workingDirectory } = await completeTree(tree, work)
  const listing = listTree(tree)
  if (listing.devices > 0) notes.push(`${listing.devices} device files are left out`)
  const disk = { sizeMib: chooseDiskMib(listing, options.diskMib) }
  await checkFreeSpace(imagesDirectory, neededBytes(listing, disk.sizeMib), options.readFreeBytes ?? readFreeBytes)
  const rootArchive = path.join(workFolder, 'root.tar')
  await steps.run('put the layers together', async () => {
    const leftOut = await writeAfterthoughts(workFolder, listing)
    if (leftOut > 0) notes.push(`${leftOut} files with strange names lose their capabilities`)
    await writeRootArchive(rootArchive, listing, { archive, image, signal: options.signal })
  })
  await buildDiskOfArchive(rootArchive, disk, path.join(result, IMAGE_FILES.rootDisk), workFolder, steps)
  const manifest = await steps.run('put the image in place', async () => {
    for (const name of [IMAGE_FILES.kernel, IMAGE_FILES.initrd]) {
      await copyFile(path.join(imageFolder(imagesDirectory, work.base.name, work.base.hash), name), path.join(result, name), constants.COPYFILE_FICLONE)
    }
    const described = await describeImage(work, workingDirectory)
    await commitImage(result, imagesDirectory, described)
    return described
  })
  return { imported: true, image: manifest, notes }
}

/** What a container engine would give a container, and what a machine of ours needs to run commands. */
async function completeTree(tree: LayerTree, { image, recipesDirectory }: Import): Promise<{ notes: string[]; workingDirectory: string | null }> {
  const notes: string[] = []
  for (const [name, mode] of Object.entries(MOUNT_POINTS)) tree.putRootFolder(name, mode).names.clear()
  for (const [name, mode] of Object.entries(NEEDED_FOLDERS)) if (tree.find(name)?.kind !== 'folder') tree.putRootFolder(name, mode)
  for (const { path: place, content } of (await readRecipe(BASE_IMAGE, recipesDirectory)).files) {
    const present = tree.find(place)
    // Engines put their own over these while a container runs; images have none, or empty ones.
    if (present === null || (present.kind === 'file' && present.sizeBytes === 0)) tree.putFile(place, content)
  }
  const variables = image.environment.filter((line) => /^[^=\0\n]+=[^\0\n]*$/.test(line))
  if (variables.length < image.environment.length) notes.push('variables whose value has a line break are left out')
  if (variables.length > 0) tree.putFile(ENVIRONMENT_FILE, checkSize(variables.map((line) => `${line}\n`).join('')))
  if (!hasProgram(tree, 'git', variables) || !hasProgram(tree, 'sh', variables)) notes.push('it has no git or no shell, which fork and create --repo need')
  if (image.user !== '' && image.user !== 'root' && image.user !== '0') {
    notes.push(`commands run as root; the image's own user is had with: kosa8 exec -u ${printable(image.user)}`)
  }
  const hasFolder = image.workingDirectory.startsWith('/') && !image.workingDirectory.split('/').includes('..')
  if (hasFolder) tree.makeFolder(image.workingDirectory)
  return { notes, workingDirectory: hasFolder ? image.workingDirectory : null }
}

function hasProgram(tree: LayerTree, program: string, variables: string[]): boolean {
  const searched = variables.findLast((line) => line.startsWith('PATH='))?.slice('PATH='.length) ?? PATH_DEFAULT
  const folders = searched.split(':').filter((folder) => /^(\/[^/.][^/]{0,99}){1,20}$/.test(folder))
  return folders.some((folder) => tree.find(`${folder}/${program}`)?.kind === 'file')
}

function checkSize(variables: string): string {
  if (Buffer.byteLength(variables) > LIMITS.environmentBytes) throw refuseTooMuch('its environment is too long', LIMITS.environmentBytes)
  return variables
}

/** @throws Kosa8Error USAGE when the files do not fit into a disk of the wanted size. */
function chooseDiskMib({ diskBytes, inodes }: TreeListing, wantedMib: number | undefined): number {
  const forInodesMib = Math.ceil(inodes * 1.1 * BYTES_PER_INODE / MIB)
  const filesMib = Math.ceil(diskBytes * 1.05 / MIB)
  const leastMib = Math.max(forInodesMib, Math.ceil((filesMib + ROOM_MIB_MIN) * 1.02))
  if (wantedMib === undefined) return Math.max(DISK_MIB_DEFAULT, Math.ceil(Math.max(leastMib, filesMib * 1.5) / 1024) * 1024)
  if (wantedMib >= leastMib) return wantedMib
  throw new Kosa8Error('USAGE', `the files of the image need a disk of at least ${leastMib} MiB, not ${wantedMib}`, {
    hint: `use --disk ${leastMib}M or more`, details: { neededMib: leastMib },
  })
}

/** The archive, the unpacked tree, the disk and its copy without holes: three of them are there at once. */
function neededBytes({ diskBytes, inodes }: TreeListing, diskMib: number): number {
  return 3 * (diskBytes + inodes * 1024) + diskMib * MIB / 32 + 64 * MIB
}

async function describeImage(work: Import, workingDirectory: string | null): Promise<ImageManifest> {
  const { image, base, result } = work
  const [kernel, initrd, rootDisk] = await Promise.all(
    [IMAGE_FILES.kernel, IMAGE_FILES.initrd, IMAGE_FILES.rootDisk].map((name) => stat(path.join(result, name))))
  const archive = printable(path.basename(path.resolve(work.file)))
  return {
    format: 'kosa8.image/1', name: work.name, hash: work.hash,
    description: `imported from ${image.reference ?? archive}`,
    createdAt: new Date().toISOString(),
    source: image.digest.slice(image.digest.indexOf(':') + 1).slice(0, 16),
    kernelVersion: base.kernelVersion, packages: {},
    sizes: { kernelBytes: kernel!.size, initrdBytes: initrd!.size, rootDiskBytes: rootDisk!.blocks * 512 },
    rootDiskSizeBytes: rootDisk!.size,
    imported: { reference: image.reference, digest: image.digest, archive, workingDirectory },
  }
}

function hashOf(parts: Record<string, unknown>): string {
  return createHash('sha256').update(JSON.stringify({ version: IMPORTER_VERSION, ...parts })).digest('hex').slice(0, 16)
}

/** `registry/team/web:1.2` becomes `web-1-2`; without a reference, the archive's name counts. */
async function defaultName(image: ContainerImage, file: string, recipesDirectory: string): Promise<string> {
  const isNamed = image.reference !== null && /[:/]/.test(image.reference)
  const text = isNamed ? image.reference!.slice(image.reference!.lastIndexOf('/') + 1).replace(/:latest$/, '')
    : path.basename(path.resolve(file)).replace(/\.(tar|tgz|gz|zst|tzst)\b.*$/i, '')
  const name = text.toLowerCase().replace(/@.*$/, '').replace(/[^a-z0-9]+/g, '-').replace(/^-+/, '').slice(0, 40).replace(/-+$/, '')
  await requireFreeName(name, recipesDirectory)
  return name
}

/** @throws Kosa8Error USAGE */
async function requireFreeName(name: string, recipesDirectory: string): Promise<void> {
  if (!imageNameSchema.safeParse(name).success) {
    throw new Kosa8Error('USAGE', `${JSON.stringify(printable(name))} cannot be the name of an image`, {
      hint: 'give one with --name: 1 to 40 lower-case letters, digits and dashes',
    })
  }
  if (!(await listRecipes(recipesDirectory)).includes(name)) return
  throw new Kosa8Error('USAGE', `${name} is the name of an image that kosa8 builds itself`, { hint: 'give another one with --name' })
}
