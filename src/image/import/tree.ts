/**
 * The file tree that an image's layers add up to, in memory.
 *
 * Owns: what each entry of a layer does to the tree: files, folders, links, hard links and whiteouts, each bounded.
 * A link on the way to a file is followed here, within the tree, as in the guest later; so nothing that is written
 * from this tree has to follow one, and nothing in an archive can point outside. Does not own: the content of
 * files, of which it only knows where it lies. Pure. Called by `import-image.ts`.
 */
import type { TarEntry } from '../../util/tar-reader.js'
import { LIMITS, printable, refuse, refuseTooMuch } from './refuse.js'

/** Owner, permissions, time. */
export interface Attributes {
  mode: number
  uid: number
  gid: number
  mtimeSeconds: number
  /** Value of security.capability. */
  capability: Buffer | null
}

/** Where a file's content lies: in an entry of a layer, or here. */
export type Content = { layer: number; index: number } | { bytes: Buffer }

/** A folder, by the names in it. */
export interface Folder { kind: 'folder'; attributes: Attributes; names: Map<string, Named> }
/** Anything else; hard links are several names of one object. */
export type Leaf =
  | { kind: 'file'; attributes: Attributes; content: Content; sizeBytes: number }
  | { kind: 'symlink'; attributes: Attributes; target: string }
  | { kind: 'pipe' | 'device'; attributes: Attributes }

/** A name in a folder, and the layer that put it there: whiteouts only hide what is of an earlier one. */
interface Named { node: Folder | Leaf; layer: number }

const WHITEOUT = '.wh.'
/** Hides all that earlier layers have in its folder. */
const OPAQUE = '.wh..wh..opq'
/** Book-keeping of a union file system of old, files and folders. */
const WHITEOUT_PRIVATE = '.wh..wh.'
/** Layer of what is added last. */
const OWN_LAYER = Number.MAX_SAFE_INTEGER
/** Folders in one another that a path has room for; by links a tree could become deeper. */
const DEPTH_MAX = LIMITS.pathBytes / 2
/** Owners are 32 bits, and the highest means nobody. */
const OWNER_MAX = 0xffff_fffe
const SECONDS_MAX = 0xffff_ffff
/** Sizes of a file's capabilities, by version. */
const CAPABILITY_BYTES = [12, 20, 24]

/** The tree; layers are added in their order, from 1. */
export class LayerTree {
  readonly root: Folder = { kind: 'folder', attributes: plainAttributes(0o755), names: new Map() }
  private nodes = 0
  private nameBytes = 0

  /** Does what one entry of a layer says. @throws IMAGE_ARCHIVE_INVALID */
  add(entry: TarEntry, layer: number, index: number): void {
    const parts = this.partsOf(entry.name, layer)
    const name = parts.at(-1)
    if (name === undefined) {
      if (entry.type === 'folder') this.root.attributes = attributesOf(entry, layer)
      return
    }
    if (parts.some((part) => part.startsWith(WHITEOUT_PRIVATE) && part !== OPAQUE)) return
    if (name.startsWith(WHITEOUT)) return this.hide(parts, layer)
    const folder = this.walk(parts.slice(0, -1), layer)
    if (entry.type === 'folder') this.putFolder(folder, name, attributesOf(entry, layer), layer)
    else this.put(folder, name, this.leafOf(entry, layer, index), layer)
  }

  /** What has that path, links followed; null when there is nothing. */
  find(path: string): Folder | Leaf | null {
    return this.resolve(this.partsOf(path, OWN_LAYER), null)
  }

  /** Adds a file of ours, in place of what has that path. */
  putFile(path: string, text: string): void {
    const parts = this.partsOf(path, OWN_LAYER)
    const bytes = Buffer.from(text)
    const folder = this.walk(parts.slice(0, -1), OWN_LAYER)
    this.put(folder, parts.at(-1) as string, { kind: 'file', attributes: plainAttributes(0o644), content: { bytes }, sizeBytes: bytes.length }, OWN_LAYER)
  }

  /** Makes a folder of that path unless there is one. */
  makeFolder(path: string): void {
    this.walk(this.partsOf(path, OWN_LAYER), OWN_LAYER)
  }

  /** Makes sure that a name in the root is a folder itself, no link. */
  putRootFolder(name: string, mode: number): Folder {
    this.putFolder(this.root, name, null, OWN_LAYER, mode)
    return this.root.names.get(name)?.node as Folder
  }

  private leafOf(entry: TarEntry, layer: number, index: number): Leaf {
    const attributes = attributesOf(entry, layer)
    switch (entry.type) {
      case 'file': return { kind: 'file', attributes, content: { layer, index }, sizeBytes: entry.sizeBytes }
      case 'symlink': return { kind: 'symlink', attributes, target: this.checkTarget(entry, layer) }
      case 'link': return this.linkedBy(entry, layer)
      case 'pipe': case 'device': return { kind: entry.type, attributes }
      default: throw refuse(`${where(layer)}: ${printable(entry.name)} is ${entry.type === 'sparse'
        ? 'stored as a sparse file; pack it without --sparse' : 'of a type that is not known'}`)
    }
  }

  private checkTarget({ name, linkName }: TarEntry, layer: number): string {
    if (linkName === '') throw refuse(`${where(layer)}: the link ${printable(name)} leads nowhere`)
    if (linkName.length >= LIMITS.pathBytes) throw refuseTooMuch(`${where(layer)}: where ${printable(name)} leads is too long`, LIMITS.pathBytes)
    this.count(linkName)
    return linkName
  }

  private linkedBy({ name, linkName }: TarEntry, layer: number): Leaf {
    const parts = this.partsOf(linkName, layer)
    const node = this.walk(parts.slice(0, -1), null)?.names.get(parts.at(-1) ?? '')?.node
    if (node !== undefined && node.kind !== 'folder') return node
    throw refuse(`${where(layer)}: ${printable(name)} is another name of ${printable(linkName)}, which is ${node === undefined ? 'not there' : 'a folder'}`)
  }

  /** What a whiteout hides: one name, or all of a folder; only what earlier layers put there. */
  private hide(parts: string[], layer: number): void {
    const marker = parts.at(-1) as string
    const folder = this.walk(parts.slice(0, -1), null)
    const hidden = marker.slice(WHITEOUT.length)
    if (hidden === '' || hidden === '.' || hidden === '..') throw refuse(`${where(layer)}: ${printable(parts.join('/'))} hides nothing`)
    if (folder === null) return
    for (const name of marker === OPAQUE ? [...folder.names.keys()] : [hidden]) hideEarlier(folder, name, layer)
  }

  private putFolder(folder: Folder, name: string, attributes: Attributes | null, layer: number, mode = 0o755): void {
    const present = folder.names.get(name)?.node
    if (present?.kind !== 'folder') {
      return this.put(folder, name, { kind: 'folder', attributes: attributes ?? plainAttributes(mode), names: new Map() }, layer)
    }
    if (attributes !== null) present.attributes = attributes
    folder.names.set(name, { node: present, layer })
  }

  private put(folder: Folder, name: string, node: Folder | Leaf, layer: number): void {
    this.count(name)
    folder.names.set(name, { node, layer })
  }

  private count(name: string): void {
    if ((this.nodes += 1) > LIMITS.entries) throw refuseTooMuch('its layers have too many files', LIMITS.entries)
    if ((this.nameBytes += name.length) > LIMITS.nameBytes) throw refuseTooMuch('its names are too long together', LIMITS.nameBytes)
  }

  private partsOf(name: string, layer: number): string[] {
    if (name.length >= LIMITS.pathBytes) throw refuseTooMuch(`${where(layer)}: the path ${printable(name)} is too long`, LIMITS.pathBytes)
    const parts = name.split('/').filter((part) => part !== '' && part !== '.')
    for (const part of parts) {
      if (part === '..') throw refuse(`${where(layer)} names ${printable(name)}`)
      if (part.length > LIMITS.partBytes) throw refuseTooMuch(`${where(layer)}: the name ${printable(part)} is too long`, LIMITS.partBytes)
    }
    return parts
  }

  /** The folder of that path, links followed; missing ones are made for `layer`. */
  private walk(parts: readonly string[], layer: number): Folder
  private walk(parts: readonly string[], layer: number | null): Folder | null
  private walk(parts: readonly string[], layer: number | null): Folder | null {
    const found = this.resolve(parts, layer)
    if (found === null || found.kind === 'folder') return found
    if (layer === null) return null
    throw refuse(`${where(layer)} puts something into ${printable(parts.join('/'))}, which is no folder`)
  }

  private resolve(parts: readonly string[], layer: number | null): Folder | Leaf | null {
    const trail = [this.root]
    const left = [...parts].reverse()
    for (let hops = 0; left.length > 0;) {
      const name = left.pop() as string
      if (name === '' || name === '.') continue
      if (name === '..') {
        if (trail.length > 1) trail.pop()
        continue
      }
      const here = trail.at(-1) as Folder
      if (!here.names.has(name) && layer !== null) this.putFolder(here, name, null, layer)
      const node = here.names.get(name)?.node
      if (node?.kind === 'folder' && trail.length < DEPTH_MAX) {
        trail.push(node)
      } else if (node?.kind === 'symlink' && (hops += 1) <= LIMITS.linkHops && left.length < LIMITS.pathBytes) {
        if (node.target.startsWith('/')) trail.length = 1
        left.push(...node.target.split('/').reverse())
      } else if (node !== undefined && node.kind !== 'folder' && node.kind !== 'symlink' && left.length === 0) {
        return node
      } else if (layer === null) {
        return null
      } else {
        throw refuse(`${where(layer)} puts something into ${printable(parts.join('/'))}, where ${printable(name)} is no folder`)
      }
    }
    return trail.at(-1) as Folder
  }
}

/** Hides a name, but for what the present layer has put below it. */
function hideEarlier(folder: Folder, name: string, layer: number): void {
  const named = folder.names.get(name)
  if (named === undefined) return
  const { node } = named
  if (node.kind === 'folder') for (const below of [...node.names.keys()]) hideEarlier(node, below, layer)
  if (named.layer < layer && (node.kind !== 'folder' || node.names.size === 0)) folder.names.delete(name)
}

function where(layer: number): string {
  return layer === OWN_LAYER ? 'its configuration' : `layer ${layer}`
}

function attributesOf(entry: TarEntry, layer: number): Attributes {
  if (entry.uid > OWNER_MAX || entry.gid > OWNER_MAX) throw refuse(`${where(layer)}: ${printable(entry.name)} has an impossible owner`)
  const capability = entry.xattrs.get('security.capability') ?? null
  return {
    mode: entry.mode, uid: entry.uid, gid: entry.gid, mtimeSeconds: Math.min(entry.mtimeSeconds, SECONDS_MAX),
    capability: capability !== null && CAPABILITY_BYTES.includes(capability.length) ? capability : null,
  }
}

function plainAttributes(mode: number): Attributes {
  return { mode, uid: 0, gid: 0, mtimeSeconds: 0, capability: null }
}
