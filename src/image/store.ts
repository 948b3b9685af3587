/**
 * The images that are there: `<images>/<name>/<hash>/{kernel,initrd,root.ext4,image.json}`.
 *
 * Owns: the on-disk layout, finding and listing. An image exists when its `image.json` does; folders whose name
 * starts with a dot belong to builds. Does not own: making images, nor removing them (`use.ts`).
 */
import { readFile, readdir } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { BootImage } from '../hypervisor/driver.js'
import { imageNameSchema } from './recipe.js'

/** What `image.json` says. */
export const imageManifestSchema = z.object({
  format: z.literal('kosa8.image/1'),
  name: imageNameSchema,
  hash: z.string().regex(/^[0-9a-f]{16}$/),
  description: z.string(),
  /** ISO 8601. */
  createdAt: z.string(),
  /** Hash of the root tree and kernel it was made from. */
  source: z.string(),
  kernelVersion: z.string(),
  /** Installed packages and their versions. */
  packages: z.record(z.string(), z.string()),
  sizes: z.object({
    kernelBytes: z.number(),
    initrdBytes: z.number(),
    /** Bytes of disk space the root disk takes. */
    rootDiskBytes: z.number(),
  }),
  /** Size of the root disk as the guest sees it, in bytes. */
  rootDiskSizeBytes: z.number(),
  /** Of a container image that was imported. */
  imported: z.object({
    /** Its name and tag, where its archive had one. */
    reference: z.string().nullable(),
    /** Digest of its configuration. */
    digest: z.string(),
    /** Name of the archive it came in. */
    archive: z.string(),
    /** Where commands start by its configuration; null where it does not say. */
    workingDirectory: z.string().nullable(),
  }).optional(),
})
export type ImageManifest = z.infer<typeof imageManifestSchema>

/** File names inside an image's folder. */
export const IMAGE_FILES = { kernel: 'kernel', initrd: 'initrd', rootDisk: 'root.ext4', manifest: 'image.json' } as const

/** An image ready to boot. */
export interface ResolvedImage {
  name: string
  hash: string
  boot: BootImage
  /** Where commands start by the configuration of an imported image. */
  workingDirectory: string | null
}

/** Name and hash of the image whose files a machine boots from. */
export function imageOf(boot: BootImage): { name: string; hash: string } {
  const folder = path.dirname(boot.rootDisk)
  return { name: path.basename(path.dirname(folder)), hash: path.basename(folder) }
}

/** Folder of one image. */
export function imageFolder(imagesDirectory: string, name: string, hash: string): string {
  return path.join(imagesDirectory, name, hash)
}

/**
 * The newest image of that name.
 * @throws Kosa8Error IMAGE_UNKNOWN with how to build it.
 */
export async function resolveImage(name: string, imagesDirectory: string): Promise<ResolvedImage> {
  const images = await listImages(imagesDirectory)
  const newest = images.find((image) => image.name === name)
  if (newest === undefined) {
    const names = [...new Set(images.map((image) => image.name))]
    throw new Kosa8Error('IMAGE_UNKNOWN', `there is no image named ${name}`, {
      hint: `run \`kosa8 image build ${name}\`, or import it with \`kosa8 image import\`; images here: ${names.join(', ') || 'none'}`,
      details: { name, known: names },
    })
  }
  const folder = imageFolder(path.resolve(imagesDirectory), name, newest.hash)
  return {
    name,
    hash: newest.hash,
    boot: {
      kernel: path.join(folder, IMAGE_FILES.kernel),
      initrd: path.join(folder, IMAGE_FILES.initrd),
      rootDisk: path.join(folder, IMAGE_FILES.rootDisk),
    },
    workingDirectory: newest.imported?.workingDirectory ?? null,
  }
}

/** Every image, by name, the newest of each name first. */
export async function listImages(imagesDirectory: string): Promise<ImageManifest[]> {
  const images: ImageManifest[] = []
  for (const name of await readNames(imagesDirectory)) {
    if (!imageNameSchema.safeParse(name).success) continue
    for (const hash of await readNames(path.join(imagesDirectory, name))) {
      const manifest = await readManifest(imagesDirectory, name, hash)
      if (manifest !== null) images.push(manifest)
    }
  }
  return images.sort((a, b) => compareTexts(a.name, b.name) || compareTexts(b.createdAt, a.createdAt))
}

/** The manifest of one image; null where there is no whole image. */
export async function readManifest(imagesDirectory: string, name: string, hash: string): Promise<ImageManifest | null> {
  const file = path.join(imageFolder(imagesDirectory, name, hash), IMAGE_FILES.manifest)
  const text = await readFile(file, 'utf8').catch(() => null)
  if (text === null) return null
  try {
    const parsed = imageManifestSchema.safeParse(JSON.parse(text))
    return parsed.success && parsed.data.name === name && parsed.data.hash === hash ? parsed.data : null
  } catch {
    return null
  }
}

async function readNames(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true }).catch(() => [])
  return entries.filter((entry) => entry.isDirectory() && !entry.name.startsWith('.')).map((entry) => entry.name)
}

function compareTexts(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}
