/**
 * Container images as `docker save` and OCI tools write them, made entry by entry: sound ones and hostile ones.
 */
import { createHash } from 'node:crypto'
import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { gzipSync } from 'node:zlib'
import { runProgram } from '../../src/util/spawn.js'

/** One entry of a tar archive; `type` is the format's letter. */
export interface Entry {
  name: string
  type?: string
  content?: string | Buffer
  linkName?: string
  mode?: number
  uid?: number
  gid?: number
  mtime?: number
  /** A pax header before it. */
  pax?: Record<string, string | Buffer>
  /** A size that the header claims in place of the true one. */
  claimedSize?: number
}

const padded = (bytes: Buffer): Buffer => Buffer.concat([bytes, Buffer.alloc((512 - bytes.length % 512) % 512)])

function paxRecord(key: string, value: string | Buffer): Buffer {
  const rest = Buffer.concat([Buffer.from(` ${key}=`), Buffer.from(value), Buffer.from('\n')])
  const guess = rest.length + String(rest.length).length
  const length = rest.length + String(guess).length
  return Buffer.concat([Buffer.from(String(length)), rest])
}

function block({ name, type = '0', content = '', linkName = '', mode = 0o644, uid = 0, gid = 0, mtime = 0, claimedSize }: Entry): Buffer {
  const header = Buffer.alloc(512)
  const octal = (value: number, digits: number): string => `${value.toString(8).padStart(digits, '0')}\0`
  header.write(name, 0, 100)
  header.write(octal(mode, 7) + octal(uid, 7) + octal(gid, 7), 100)
  header.write(octal(claimedSize ?? Buffer.byteLength(content), 11) + octal(mtime, 11), 124)
  header.write('        ', 148)
  header.write(type, 156)
  header.write(linkName, 157, 100)
  header.write('ustar\0' + '00', 257)
  header.write(`${header.reduce((sum, byte) => sum + byte, 0).toString(8).padStart(6, '0')}\0 `, 148)
  return header
}

/** A tar archive of these entries. */
export function tar(entries: Entry[]): Buffer {
  const blocks = entries.flatMap((entry) => {
    const pax = Buffer.concat(Object.entries(entry.pax ?? {}).map(([key, value]) => paxRecord(key, value)))
    return [
      ...(pax.length > 0 ? [block({ name: 'pax', type: 'x', content: pax }), padded(pax)] : []),
      block(entry), padded(Buffer.from(entry.content ?? '')),
    ]
  })
  return Buffer.concat([...blocks, Buffer.alloc(1024)])
}

/** Hexadecimal SHA-256. */
export function sha256(bytes: string | Buffer): string {
  return createHash('sha256').update(bytes).digest('hex')
}

/** What an image is made of besides its layers. */
export interface ImageOptions {
  reference?: string
  architecture?: string
  config?: Record<string, unknown>
  /** `zstd` needs the program. */
  compression?: 'none' | 'gzip' | 'zstd'
}

/** Files of an archive, by name. */
export type Files = Map<string, Buffer>

function configOf(layers: Buffer[], options: ImageOptions): Buffer {
  return Buffer.from(JSON.stringify({
    os: 'linux', architecture: options.architecture ?? 'amd64', config: options.config ?? {},
    rootfs: { type: 'layers', diff_ids: layers.map((layer) => `sha256:${sha256(layer)}`) },
  }))
}

/** The older layout of `docker save`: manifest.json and a folder for each layer. */
export function dockerFiles(layers: Buffer[], options: ImageOptions = {}): Files {
  const config = configOf(layers, options)
  const name = `${sha256(config)}.json`
  const paths = layers.map((layer, index) => `${sha256(`${index}${sha256(layer)}`)}/layer.tar`)
  return new Map([
    ...layers.map((layer, index) => [paths[index] as string, layer] as const),
    [name, config],
    ['manifest.json', Buffer.from(JSON.stringify([{ Config: name, RepoTags: [options.reference ?? 'demo:1.0'], Layers: paths }]))],
  ])
}

/** An OCI image layout. With several images, they become the platforms of one index. */
export async function ociFiles(images: { layers: Buffer[]; options?: ImageOptions }[], reference = 'docker.io/library/demo:1.0'): Promise<Files> {
  const files: Files = new Map([['oci-layout', Buffer.from('{"imageLayoutVersion":"1.0.0"}')]])
  const add = (bytes: Buffer): { digest: string; size: number } => {
    files.set(`blobs/sha256/${sha256(bytes)}`, bytes)
    return { digest: `sha256:${sha256(bytes)}`, size: bytes.length }
  }
  const manifests = []
  for (const { layers, options = {} } of images) {
    const config = add(configOf(layers, options))
    const packed = []
    for (const layer of layers) packed.push(add(await compress(layer, options.compression ?? 'gzip')))
    const manifest = add(Buffer.from(JSON.stringify({ schemaVersion: 2, config, layers: packed })))
    manifests.push({ ...manifest, platform: { os: 'linux', architecture: options.architecture ?? 'amd64' } })
  }
  const annotations = { 'io.containerd.image.name': reference }
  const top = manifests.length === 1 ? { ...manifests[0], annotations }
    : { ...add(Buffer.from(JSON.stringify({ schemaVersion: 2, manifests }))), annotations }
  files.set('index.json', Buffer.from(JSON.stringify({ schemaVersion: 2, manifests: [top] })))
  return files
}

async function compress(bytes: Buffer, compression: 'none' | 'gzip' | 'zstd'): Promise<Buffer> {
  if (compression === 'none') return bytes
  if (compression === 'gzip') return gzipSync(bytes, { level: 1 })
  return (await runProgram('zstd', ['-qc'], { stdin: bytes, outputBytesMax: 1024 ** 3 })).stdout
}

/** The files as one tar archive. */
export function archiveOf(files: Files): Buffer {
  return tar([...files].map(([name, content]) => ({ name, content })))
}

/** The files as a folder. */
export async function writeFiles(folder: string, files: Files): Promise<void> {
  for (const [name, content] of files) {
    await mkdir(path.dirname(path.join(folder, name)), { recursive: true })
    await writeFile(path.join(folder, name), content)
  }
}
