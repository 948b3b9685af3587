/**
 * Which image an archive holds: its layers, in order, and its configuration.
 *
 * Owns: both layouts, that of OCI (`index.json`, blobs by digest, also inside what a newer `docker save` writes)
 * and the older one of docker (`manifest.json`), and the choice of linux/amd64 among platforms. Every document is
 * bounded and checked against its digest before it is parsed. Called by `import-image.ts`.
 */
import { createHash } from 'node:crypto'
import path from 'node:path'
import { z } from 'zod'
import { readDocument, type ImageArchive } from './archive.js'
import { LIMITS, printable, refuse, refuseTooMuch, refuseWithoutImage } from './refuse.js'

const digestSchema = z.string().regex(/^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$/, 'not a digest')
const optionalText = z.string().nullish()

const descriptorSchema = z.object({
  digest: digestSchema,
  platform: z.object({ os: z.string(), architecture: z.string(), variant: optionalText }).nullish(),
  annotations: z.record(z.string(), z.string()).nullish(),
})
type Descriptor = z.infer<typeof descriptorSchema>

const indexSchema = z.object({ manifests: z.array(descriptorSchema).max(LIMITS.manifests) })
const manifestSchema = z.object({ config: descriptorSchema, layers: z.array(descriptorSchema).max(LIMITS.layers) })
const dockerManifestSchema = z.array(z.object({
  Config: z.string(), RepoTags: z.array(z.string()).nullish(), Layers: z.array(z.string()).max(LIMITS.layers),
})).min(1)

const configSchema = z.object({
  os: z.string(),
  architecture: z.string(),
  rootfs: z.object({ type: z.literal('layers'), diff_ids: z.array(digestSchema).max(LIMITS.layers) }),
  config: z.object({ Env: z.array(z.string()).nullish(), WorkingDir: optionalText, User: optionalText }).nullish(),
})

/** One layer of an image. */
export interface ImageLayer {
  /** File in the archive. */
  name: string
  /** Of that file; null where only its content has a digest. */
  digest: string | null
  /** Of what is left once it is decompressed. */
  contentDigest: string
}

/** What an archive holds. */
export interface ContainerImage {
  /** Digest of the configuration, by which docker knows the image. */
  digest: string
  /** Its name and tag; null where the archive does not say. */
  reference: string | null
  layers: ImageLayer[]
  /** `NAME=value` each. */
  environment: string[]
  workingDirectory: string
  user: string
}

/** @throws Kosa8Error IMAGE_ARCHIVE_INVALID when there is no image for linux/amd64, or not exactly one. */
export async function readContainerImage(archive: ImageArchive): Promise<ContainerImage> {
  if (await archive.has('index.json')) return readOciImage(archive)
  if (await archive.has('manifest.json')) return readDockerImage(archive)
  throw refuseWithoutImage()
}

async function readOciImage(archive: ImageArchive): Promise<ContainerImage> {
  const leaves = await collectManifests(archive)
  const fitting = [...new Map(leaves.filter(({ platform }) => platform.startsWith('linux/amd64'))
    .map((leaf) => [leaf.digest, leaf])).values()]
  const best = fitting.filter(({ platform }) => platform === fitting.map((leaf) => leaf.platform).sort()[0])
  if (best[0] === undefined) {
    throw refuse(`it has no image for linux/amd64, but for ${listOf(leaves.map(({ platform }) => platform)) || 'no platform at all'}`)
  }
  const references = new Set(fitting.map(({ reference }) => reference))
  if (best.length > 1 || references.size > 1) throw refuseSeveral(fitting.map(({ reference, digest }) => reference ?? digest))
  const manifest = parse(manifestSchema, await readBlob(archive, best[0].digest), 'its manifest')
  const config = parse(configSchema, await readBlob(archive, manifest.config.digest), 'its configuration')
  const layers = manifest.layers.map(({ digest }) => ({ name: blobName(digest), digest }))
  return describe(config, manifest.config.digest, leaves.find(({ digest }) => digest === best[0]?.digest)?.reference ?? null, layers)
}

interface Leaf { digest: string; platform: string; reference: string | null }

/** Every image manifest that the index leads to, also by further indexes. */
async function collectManifests(archive: ImageArchive): Promise<Leaf[]> {
  const top = parse(indexSchema, await readDocument(archive, 'index.json'), 'index.json')
  const waiting = top.manifests.map((descriptor) => ({ descriptor, reference: referenceOf(descriptor) }))
  const leaves: Leaf[] = []
  for (let seen = 1; waiting.length > 0; seen += 1) {
    if (seen > LIMITS.manifests) throw refuseTooMuch('its index leads to too many manifests', LIMITS.manifests)
    const { descriptor, reference } = waiting.shift()!
    const { digest, platform } = descriptor
    if (platform !== null && platform !== undefined && !isFitting(platform)) {
      leaves.push({ digest, platform: describePlatform(platform), reference })
      continue
    }
    const bytes = await readBlob(archive, digest)
    const nested = indexSchema.safeParse(parseJson(bytes, digest))
    if (nested.success) waiting.push(...nested.data.manifests.map((each) => ({ descriptor: each, reference: reference ?? referenceOf(each) })))
    else leaves.push({ digest, platform: platform ? describePlatform(platform) : await platformOf(archive, bytes), reference })
  }
  return leaves
}

/** An image whose index does not name its platform says it in its configuration; a signature or the like says none. */
async function platformOf(archive: ImageArchive, bytes: Buffer): Promise<string> {
  const manifest = parse(manifestSchema, bytes, 'a manifest')
  const config = configSchema.safeParse(parseJson(await readBlob(archive, manifest.config.digest), 'a configuration'))
  return config.success ? describePlatform(config.data) : 'no platform'
}

function isFitting({ os, architecture }: { os: string; architecture: string }): boolean {
  return os === 'linux' && architecture === 'amd64'
}

function describePlatform({ os, architecture, variant }: { os: string; architecture: string; variant?: string | null | undefined }): string {
  return printable([os, architecture, ...(variant ? [variant] : [])].join('/'))
}

function referenceOf({ annotations }: Descriptor): string | null {
  return annotations?.['io.containerd.image.name'] ?? annotations?.['org.opencontainers.image.ref.name'] ?? null
}

async function readDockerImage(archive: ImageArchive): Promise<ContainerImage> {
  const images = parse(dockerManifestSchema, await readDocument(archive, 'manifest.json'), 'manifest.json')
  const image = images[0]!
  if (images.length > 1) throw refuseSeveral(images.map(({ RepoTags, Config }) => RepoTags?.[0] ?? Config))
  const configName = path.posix.normalize(image.Config)
  const bytes = await readDocument(archive, configName)
  const digest = digestOf('sha256', bytes)
  const claimed = /([0-9a-f]{64})(\.json)?$/.exec(configName)?.[1]
  if (claimed !== undefined && digest !== `sha256:${claimed}`) throw refuse('its configuration is not what its digest says')
  const config = parse(configSchema, bytes, 'its configuration')
  if (!isFitting(config)) throw refuse(`it has no image for linux/amd64, but for ${describePlatform(config)}`)
  const layers = image.Layers.map((name) => ({ name: path.posix.normalize(name), digest: null }))
  return describe(config, digest, image.RepoTags?.[0] ?? null, layers)
}

function describe(
  config: z.infer<typeof configSchema>, digest: string, reference: string | null, layers: Omit<ImageLayer, 'contentDigest'>[],
): ContainerImage {
  const contents = config.rootfs.diff_ids
  if (contents.length !== layers.length) {
    throw refuse(`it has ${layers.length} layers, but its configuration speaks of ${contents.length}`)
  }
  return {
    digest, reference: reference === null ? null : printable(reference),
    layers: layers.map((layer, index) => ({ ...layer, contentDigest: contents[index] as string })),
    environment: config.config?.Env ?? [], workingDirectory: config.config?.WorkingDir ?? '', user: config.config?.User ?? '',
  }
}

function refuseSeveral(names: string[]): Error {
  return refuse(`it has several images: ${listOf(names)}; save one of them alone`)
}

function listOf(names: string[]): string {
  const different = [...new Set(names.map(printable))].sort()
  return different.slice(0, 10).join(', ') + (different.length > 10 ? `, and ${different.length - 10} more` : '')
}

function blobName(digest: string): string {
  return `blobs/${digest.replace(':', '/')}`
}

async function readBlob(archive: ImageArchive, digest: string): Promise<Buffer> {
  const bytes = await readDocument(archive, blobName(digest))
  if (digestOf(digest.split(':')[0] as string, bytes) !== digest) throw refuse(`${blobName(digest)} is not what its digest says`)
  return bytes
}

function digestOf(algorithm: string, bytes: Buffer): string {
  return `${algorithm}:${createHash(algorithm).update(bytes).digest('hex')}`
}

function parse<T>(schema: z.ZodType<T>, bytes: Buffer, what: string): T {
  const parsed = schema.safeParse(parseJson(bytes, what))
  if (parsed.success) return parsed.data
  const issue = parsed.error.issues[0]
  throw refuse(`${what} is not as it should be: ${printable(issue?.path.join('.') ?? '')}: ${printable(issue?.message ?? '')}`)
}

function parseJson(bytes: Buffer, what: string): unknown {
  try {
    return JSON.parse(bytes.toString('utf8'))
  } catch (error) {
    throw refuse(`${what} is not JSON`, error)
  }
}
