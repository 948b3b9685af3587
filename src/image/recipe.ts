/**
 * A recipe: what an image is made of, as data in `guest/images/NAME.json`.
 *
 * Owns: the recipe's schema, reading it with what it extends, and the hash that names an image.
 * Does not own: carrying a recipe out. Called by `build.ts` only.
 */
import { createHash } from 'node:crypto'
import { readFile, readdir, readlink, lstat } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import { Kosa8Error } from '../errors/kosa8-error.js'

/** Raised when the same recipe would no longer give the same image. */
const IMAGE_BUILDER_VERSION = 1

/** Names of images: they become folder names. */
export const imageNameSchema = z.string()
  .regex(/^[a-z0-9][a-z0-9-]{0,39}$/, 'use 1 to 40 lower-case letters, digits and dashes')

const guestPathSchema = z.string().regex(/^\/[^\0]*$/).refine(
  (value) => path.posix.normalize(value) === value, 'use a plain absolute path')

/** Packages of a Debian release, and its kernel. */
const debianSourceSchema = z.strictObject({
  kind: z.literal('debian'),
  suite: z.string().regex(/^[a-z]+$/),
  packages: z.array(z.string().regex(/^[a-z0-9][a-z0-9+.-]*$/)),
  /** Patterns of files that are not installed, as in dpkg's path-exclude. */
  excludedPaths: z.array(z.string()),
  /** The package that depends on the newest kernel. */
  kernelPackage: z.string().regex(/^[a-z0-9][a-z0-9+.-]*$/),
})

/** Folders beside the recipe: a root tree, and a folder with `vmlinuz` and modules in `*.ko` files. */
const treeSourceSchema = z.strictObject({
  kind: z.literal('tree'),
  root: z.string(),
  kernel: z.string(),
})

const npmPackageSchema = z.strictObject({
  name: z.string().regex(/^(@[a-z0-9-]+\/)?[a-z0-9][a-z0-9._-]*$/),
  version: z.string().regex(/^\d+\.\d+\.\d+$/),
  /** As the registry states it; a download that differs is refused. */
  integrity: z.string().regex(/^sha512-[A-Za-z0-9+/]+=*$/),
  /** Folder of the guest the package's content is unpacked into. */
  into: guestPathSchema,
  /** Paths of the package to take; all of it when left out. */
  only: z.array(z.string()).optional(),
})

const recipeSchema = z.strictObject({
  format: z.literal('kosa8.recipe/1'),
  name: imageNameSchema,
  description: z.string(),
  source: z.discriminatedUnion('kind', [debianSourceSchema, treeSourceSchema]),
  /** Kernel modules the agent loads; what they depend on is added, what is built in is left out. */
  modules: z.array(z.string()),
  npmPackages: z.array(npmPackageSchema),
  files: z.array(z.strictObject({ path: guestPathSchema, content: z.string(), executable: z.boolean().optional() })),
  links: z.array(z.strictObject({ path: guestPathSchema, target: z.string() })),
  disk: z.strictObject({
    /** Size the guest sees; the file is sparse. */
    sizeMib: z.number().int().min(16).max(1024 * 1024),
  }),
})
/** Everything an image is made of. */
export type Recipe = z.infer<typeof recipeSchema>
/** Where the root tree and the kernel come from. */
export type ImageSource = Recipe['source']
/** One package of the npm registry to unpack into the image. */
export type NpmPackage = z.infer<typeof npmPackageSchema>

/**
 * Reads a recipe together with what it extends: lists are joined, other keys replaced.
 * @throws Kosa8Error IMAGE_UNKNOWN naming the recipes there are; CONFIG_INVALID.
 */
export async function readRecipe(name: string, recipesDirectory: string): Promise<Recipe> {
  const parsed = recipeSchema.safeParse(await readMerged(name, recipesDirectory, []))
  if (parsed.success) return parsed.data
  throw new Kosa8Error('CONFIG_INVALID', `the recipe of image ${name} is not valid: ${z.prettifyError(parsed.error)}`, {
    hint: `mend ${path.join(recipesDirectory, `${name}.json`)}`,
  })
}

async function readMerged(name: string, directory: string, seen: string[]): Promise<Record<string, unknown>> {
  if (seen.includes(name)) {
    throw new Kosa8Error('CONFIG_INVALID', `the recipes ${[...seen, name].join(' → ')} extend each other`)
  }
  const { extends: parentName, ...own } = await readRecipeFile(name, directory)
  if (typeof parentName !== 'string') return own
  const parent = await readMerged(parentName, directory, [...seen, name])
  const merged: Record<string, unknown> = { ...parent, ...own }
  for (const key of ['modules', 'npmPackages', 'files', 'links']) {
    merged[key] = [...listOf(parent[key]), ...listOf(own[key])]
  }
  return merged
}

function listOf(value: unknown): unknown[] {
  return Array.isArray(value) ? value : []
}

async function readRecipeFile(name: string, directory: string): Promise<Record<string, unknown>> {
  const file = path.join(directory, `${imageNameSchema.safeParse(name).data ?? ''}.json`)
  try {
    const value: unknown = JSON.parse(await readFile(file, 'utf8'))
    if (typeof value === 'object' && value !== null) return value as Record<string, unknown>
    throw new SyntaxError('not an object')
  } catch (error) {
    if (error instanceof SyntaxError) {
      throw new Kosa8Error('CONFIG_INVALID', `the recipe ${file} is not valid JSON: ${error.message}`, { cause: error })
    }
    const known = await listRecipes(directory)
    throw new Kosa8Error('IMAGE_UNKNOWN', `there is no recipe for an image named ${name}`, {
      hint: `recipes: ${known.join(', ') || 'none'}`, cause: error,
    })
  }
}

/** Names of the recipes there are, sorted. */
export async function listRecipes(recipesDirectory: string): Promise<string[]> {
  const names = await readdir(recipesDirectory).catch(() => [])
  return names.filter((file) => file.endsWith('.json')).map((file) => file.slice(0, -'.json'.length)).sort()
}

/** Hash of what a source gives: the same for all images that only differ in what is put on top. */
export async function hashSource(source: ImageSource, recipesDirectory: string): Promise<string> {
  const hash = createHash('sha256').update(canonicalJson({ version: IMAGE_BUILDER_VERSION, source }))
  if (source.kind === 'tree') {
    for (const folder of [source.root, source.kernel]) await hashTree(hash, path.resolve(recipesDirectory, folder))
  }
  return hash.digest('hex').slice(0, 16)
}

/** Hash that names an image: recipe, source, the agent's source text and this builder's version. */
export async function hashImage(recipe: Recipe, sourceHash: string, agentFiles: string[]): Promise<string> {
  const hash = createHash('sha256').update(canonicalJson({ version: IMAGE_BUILDER_VERSION, recipe, sourceHash }))
  for (const file of agentFiles) {
    hash.update(`\0${path.basename(file)}\0`).update(await readFile(file))
  }
  return hash.digest('hex').slice(0, 16)
}

type Hash = ReturnType<typeof createHash>

async function hashTree(hash: Hash, folder: string, prefix = ''): Promise<void> {
  const names = (await readdir(folder)).sort()
  for (const name of names) {
    const file = path.join(folder, name)
    const stat = await lstat(file)
    hash.update(`\0${prefix}${name}\0${stat.mode.toString(8)}\0`)
    if (stat.isDirectory()) await hashTree(hash, file, `${prefix}${name}/`)
    else if (stat.isSymbolicLink()) hash.update(await readlink(file))
    else if (stat.isFile()) hash.update(await readFile(file))
  }
}

function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null'
  const entries = Object.entries(value).filter(([, item]) => item !== undefined).sort(([a], [b]) => (a < b ? -1 : 1))
  return `{${entries.map(([key, item]) => `${JSON.stringify(key)}:${canonicalJson(item)}`).join(',')}}`
}
