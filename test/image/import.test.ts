/**
 * Container images, sound and hostile, made into sandbox images through the real steps; the base image is a tiny one.
 */
import { lstat, mkdir, mkdtemp, readFile, readdir, rm, symlink, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { gzipSync } from 'node:zlib'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { buildImage } from '../../src/image/build.js'
import { importImage, type ImportImageOptions } from '../../src/image/import/import-image.js'
import { LayerTree } from '../../src/image/import/tree.js'
import { listImages, resolveImage } from '../../src/image/store.js'
import { runProgram } from '../../src/util/spawn.js'
import { archiveOf, dockerFiles, ociFiles, sha256, tar, writeFiles, type Entry, type Files } from '../helpers/container-image.js'

let shared: string
/** With the tiny base image, which is built once; what a test imports is removed after it. */
let images: string
let folder: string

beforeAll(async () => {
  shared = await mkdtemp(path.join(os.tmpdir(), 'kosa8-import-'))
  const put = async (name: string, content: string): Promise<void> => {
    await mkdir(path.dirname(path.join(shared, name)), { recursive: true })
    await writeFile(path.join(shared, name), content)
  }
  await put('tree/etc/motd', 'hello\n')
  await put('kernel/boot/vmlinuz-9.9-test', 'kernel')
  await put('kernel/lib/modules.builtin', '')
  await put('agent/main.c', 'int main(void) { return 0; }\n')
  await put('recipes/base.json', JSON.stringify({
    format: 'kosa8.recipe/1', name: 'base', description: 'a test image', source: { kind: 'tree', root: '../tree', kernel: '../kernel' },
    modules: [], npmPackages: [], files: [{ path: '/etc/hostname', content: 'guest\n' }, { path: '/etc/hosts', content: '127.0.0.1 localhost\n' }],
    links: [], disk: { sizeMib: 32 },
  }))
  images = path.join(shared, 'images')
  await buildImage('base', places())
})
afterAll(() => rm(shared, { recursive: true, force: true }))

beforeEach(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'kosa8-import-'))
})
afterEach(async () => {
  await rm(folder, { recursive: true, force: true })
  for (const name of await readdir(images)) if (!['base', '.sources', '.lock'].includes(name)) await rm(path.join(images, name), { recursive: true })
})

function places() {
  return { imagesDirectory: images, recipesDirectory: path.join(shared, 'recipes'), agentDirectory: path.join(shared, 'agent') }
}

async function importFile(content: Buffer, options: Partial<ImportImageOptions> = {}) {
  const file = path.join(folder, 'image.tar')
  await writeFile(file, content)
  return importFrom(file, options)
}

function importFrom(file: string, options: Partial<ImportImageOptions> = {}) {
  return importImage(file, { ...places(), diskMib: 128, ...options })
}

/** Imports layers in docker's older layout. */
function importLayers(...layers: Entry[][]) {
  return importFile(archiveOf(dockerFiles(layers.map(tar))))
}

async function onDisk(command: string, name = 'demo-1-0'): Promise<string> {
  const { boot } = await resolveImage(name, images)
  const script = 'PATH="$PATH:/usr/sbin:/sbin" exec debugfs -R "$1" "$2"'
  return (await runProgram('sh', ['-c', script, 'sh', command, boot.rootDisk])).stdout.toString()
}

async function namesIn(place: string): Promise<string[]> {
  return (await onDisk(`ls -p ${place}`)).split('\n').map((line) => line.split('/')[5] ?? '')
    .filter((name) => !['', '.', '..', 'lost+found'].includes(name)).sort()
}

const HELLO: Entry[] = [{ name: 'etc/', type: '5', mode: 0o755 }, { name: 'etc/hello', content: 'hello\n' }]

describe('the layouts', () => {
  const kinds: [string, () => Promise<Files>][] = [
    ['older docker save', async () => dockerFiles([tar(HELLO)])],
    ['OCI, gzip', () => ociFiles([{ layers: [tar(HELLO)] }])],
    ['OCI, not compressed', () => ociFiles([{ layers: [tar(HELLO)], options: { compression: 'none' } }])],
    ['OCI, zstd', () => ociFiles([{ layers: [tar(HELLO)], options: { compression: 'zstd' } }])],
    ['newer docker save', async () => new Map([...await ociFiles([{ layers: [tar(HELLO)] }]), ['manifest.json', Buffer.from('[]')]])],
    ['several platforms', () => ociFiles([
      { layers: [tar([])], options: { architecture: 'arm64' } }, { layers: [tar(HELLO)] }])],
  ]
  test.each(kinds)('%s: the image is there with its source, kernel and agent, and takes its name from the container image', async (_kind, files) => {
    const { imported, image } = await importFile(archiveOf(await files()))
    expect(imported).toBe(true)
    expect(image).toMatchObject({ name: 'demo-1-0', imported: { reference: expect.stringMatching(/demo:1.0$/) as string, archive: 'image.tar' } })
    expect(await onDisk('cat /etc/hello')).toBe('hello\n')
    const { boot } = await resolveImage('demo-1-0', images)
    expect(await readFile(boot.kernel, 'utf8')).toBe('kernel')
    expect((await readFile(boot.initrd)).equals(await readFile((await resolveImage('base', images)).boot.initrd))).toBe(true)
  })

  test('a folder and a compressed archive are read as well, and what is there is not imported again', async () => {
    const files = await ociFiles([{ layers: [tar(HELLO)] }])
    await writeFiles(path.join(folder, 'layout'), files)
    expect((await importFrom(path.join(folder, 'layout'))).imported).toBe(true)
    expect((await importFile(gzipSync(archiveOf(files)))).imported).toBe(false)
  })

  test('a layer that docker saved as a link to an equal one is found', async () => {
    const layer = tar(HELLO)
    const files = dockerFiles([layer, layer])
    const [first, second] = [...files.keys()].filter((name) => name.endsWith('layer.tar')) as [string, string]
    const entries = [...files].map(([name, content]): Entry => name === second ? { name, type: '2', linkName: `../${first}` } : { name, content })
    expect((await importFile(tar(entries))).imported).toBe(true)
  })
})

describe('an archive is refused that', () => {
  const swap = (files: Files, change: (bytes: Buffer) => Buffer, matches: (name: string) => boolean): Buffer =>
    archiveOf(new Map([...files].map(([name, bytes]) => [name, matches(name) ? change(bytes) : bytes])))
  const isLargestBlob = (files: Files) => (name: string): boolean =>
    name.startsWith('blobs/') && [...files].filter(([each]) => each.startsWith('blobs/')).every(([, bytes]) => bytes.length <= (files.get(name) as Buffer).length)
  const large = tar([{ name: 'large', content: Buffer.alloc(100_000, 7) }])

  const cases: [string, () => Promise<Buffer>, RegExp][] = [
    ['has other platforms only', async () => archiveOf(await ociFiles([
      { layers: [], options: { architecture: 'arm64' } }, { layers: [], options: { architecture: 's390x' } }])), /no image for linux\/amd64, but for linux\/arm64, linux\/s390x/],
    ['is for another platform, in docker\'s layout', async () => archiveOf(dockerFiles([], { architecture: 'arm64' })), /but for linux\/arm64/],
    ['has several images', async () => {
      const manifest = (name: string) => ({ Config: name, RepoTags: [`${name}:1`], Layers: [] })
      return tar([{ name: 'manifest.json', content: JSON.stringify([manifest('a'), manifest('b')]) }])
    }, /several images: a:1, b:1; save one of them alone/],
    ['has neither index nor manifest', async () => tar([{ name: 'readme', content: 'x' }]), /neither an index.json .* nor a manifest.json/],
    ['is no archive', async () => Buffer.alloc(5000, 'x'), /a header in it is damaged/],
    ['is compressed with xz', async () => Buffer.from([0xfd, 0x37, 0x7a, 0x58, 0x5a, 0, 0, 0]), /compressed with xz/],
    ['has a manifest with other content than its digest says', async () => {
      const files = await ociFiles([{ layers: [tar(HELLO)] }])
      return swap(files, (bytes) => Buffer.from(bytes.toString().replace('"schemaVersion":2', '"schemaVersion":3')), (name) => name.startsWith('blobs/'))
    }, /blobs\/sha256\/[0-9a-f]+ is not what its digest says/],
    ['has a layer with other content than its digest says', async () => {
      const files = await ociFiles([{ layers: [large], options: { compression: 'none' } }])
      return swap(files, (bytes) => Buffer.concat([bytes.subarray(0, 600), Buffer.from('!'), bytes.subarray(601)]), isLargestBlob(files))
    }, /layer 1 is not what its digest says/],
    ['has a layer with other content than its configuration says', async () => {
      const files = dockerFiles([large])
      return swap(files, (bytes) => Buffer.concat([bytes.subarray(0, 600), Buffer.from('!'), bytes.subarray(601)]), (name) => name.endsWith('layer.tar'))
    }, /the content of layer 1 is not what its digest says/],
    ['breaks off', async () => archiveOf(dockerFiles([large])).subarray(0, 50_000), /it breaks off/],
    ['has a layer that breaks off', async () => archiveOf(dockerFiles([large.subarray(0, 50_000)])), /layer 1: it breaks off/],
    ['has a damaged gzip layer', async () => {
      const files = await ociFiles([{ layers: [tar([{ name: 'noise', content: Buffer.from(sha256('a').repeat(5000)) }])] }])
      return swap(files, (bytes) => Buffer.concat([bytes.subarray(0, 100), Buffer.alloc(bytes.length - 100)]), isLargestBlob(files))
    }, /a part of it is damaged \(gzip|is not what its digest says/],
    ['lacks a layer', async () => {
      const files = dockerFiles([large])
      return archiveOf(new Map([...files].filter(([name]) => !name.endsWith('layer.tar'))))
    }, /it has no file [0-9a-f]+\/layer.tar/],
    ['has more layers than its configuration', async () => {
      const files = dockerFiles([large])
      const text = (files.get('manifest.json') as Buffer).toString().replace('"Layers":[', '"Layers":["more",')
      return archiveOf(new Map([...files, ['manifest.json', Buffer.from(text)]]))
    }, /it has 2 layers, but its configuration speaks of 1/],
    ['has an endless manifest', async () => tar([{ name: 'manifest.json', content: Buffer.alloc(5 * 1024 * 1024, ' ') }]), /the limit is 4,194,304/],
  ]
  test.each(cases)('%s', async (_what, make, message) => {
    await expect(importFile(await make())).rejects.toMatchObject({ code: 'IMAGE_ARCHIVE_INVALID', message: expect.stringMatching(message) as string })
    expect((await readdir(images)).filter((name) => name.startsWith('.building-'))).toEqual([])
    expect((await listImages(images)).map(({ name }) => name)).toEqual(['base'])
  })

  test('names files outside, as a folder', async () => {
    const layout = path.join(folder, 'layout')
    await writeFile(path.join(folder, 'secret'), '{}')
    const manifest = [{ Config: '../secret', RepoTags: ['a:1'], Layers: [] }]
    await writeFiles(layout, new Map([['manifest.json', Buffer.from(JSON.stringify(manifest))]]))
    await expect(importFrom(layout)).rejects.toMatchObject({ code: 'IMAGE_ARCHIVE_INVALID', message: expect.stringContaining('it names a file ../secret') as string })
    await rm(path.join(layout, 'manifest.json'))
    await symlink(path.join(folder, 'secret'), path.join(layout, 'manifest.json'))
    await expect(importFrom(layout)).rejects.toThrow('neither an index.json')
  })
})

describe('layers', () => {
  test('add up: later files replace earlier ones, whiteouts hide what earlier layers have and nothing else', async () => {
    await importLayers(
      [{ name: 'a/one', content: '1' }, { name: 'a/two', content: '2' }, { name: 'b/old/deep', content: 'x' }, { name: 'c', content: 'file' },
        { name: 'door', type: '2', linkName: 'a' }, { name: 'd/was/a/folder', content: 'x' }],
      [{ name: 'a/one', content: 'uno' }, { name: 'a/.wh.two' }, { name: 'b/new', content: 'n' }, { name: 'b/.wh..wh..opq' },
        { name: 'c/', type: '5' }, { name: 'c/inside', content: 'i' }, { name: 'd/.wh.was' }, { name: 'd/was', content: 'now a file' },
        { name: 'e/.wh.nothing' }, { name: '.wh..wh.plnk/1', content: 'x' }],
    )
    expect(await onDisk('cat /a/one')).toBe('uno')
    expect(await namesIn('/a')).toEqual(['one'])
    expect(await namesIn('/b')).toEqual(['new'])
    expect(await namesIn('/c')).toEqual(['inside'])
    expect(await onDisk('cat /d/was')).toBe('now a file')
    expect(await namesIn('/')).toEqual(['a', 'b', 'c', 'd', 'dev', 'door', 'etc', 'proc', 'root', 'run', 'sys', 'tmp'])
  })

  test('keep owners, times, permissions with setuid, capabilities, hard links and long names', async () => {
    const long = `${'a-folder-with-a-long-name/'.repeat(8)}file-ü`
    const capability = Buffer.from('0100000200200000000000000000000000000000', 'hex')
    await importLayers([
      { name: 'bin/', type: '5', mode: 0o755 },
      { name: 'bin/su', content: 'su', mode: 0o4755, uid: 12, gid: 34, mtime: 1_600_000_000 },
      { name: 'bin/sudo', type: '1', linkName: 'bin/su' },
      { name: 'bin/ping', content: 'p', mode: 0o755, pax: { 'SCHILY.xattr.security.capability': capability, 'SCHILY.xattr.user.other': 'x' } },
      { name: 'bin/secret', content: 's', mode: 0 },
      { name: 'short', content: 'long', pax: { path: long, uid: '3000000' } },
      { name: 'pipe', type: '6' },
    ])
    expect(await onDisk('stat /bin/su')).toMatch(/Mode: +04755[^]*User: +12 +Group: +34[^]*Links: 2[^]*mtime: 0x5f5e1000/)
    expect(await onDisk('stat /bin/sudo')).toMatch(/Mode: +04755/)
    expect(await onDisk('ea_list /bin/ping')).toContain(`security.capability (20) = ${capability.toString('hex').replace(/../g, '$& ')}`)
    expect(await onDisk('stat /bin/secret')).toMatch(/Mode: +0000 /)
    expect(await onDisk(`cat /${long}`)).toBe('long')
    expect(await onDisk(`stat /${long}`)).toMatch(/User: +3000000/)
    expect(await onDisk('stat /pipe')).toContain('Type: FIFO')
  })

  test('get the mount points, a root\'s home and the files a container engine would provide; devices are left out', async () => {
    const { notes } = await importLayers([
      { name: 'dev/', type: '5' }, { name: 'dev/sda', type: '4' }, { name: 'dev/file', content: 'x' }, { name: 'disk', type: '4' },
      { name: 'run', type: '2', linkName: '/nowhere' }, { name: 'proc', content: 'a file' }, { name: 'tmp', type: '2', linkName: '/var/tmp' },
      { name: 'etc/hosts', content: '' }, { name: 'etc/hostname', content: 'mine\n' },
    ])
    expect(await namesIn('/')).toEqual(['dev', 'etc', 'proc', 'root', 'run', 'sys', 'tmp'])
    expect(await namesIn('/dev')).toEqual([])
    for (const name of ['run', 'proc', 'tmp']) expect(await onDisk(`stat /${name}`)).toContain('Type: directory')
    expect(await onDisk('cat /etc/hosts')).toBe('127.0.0.1 localhost\n')
    expect(await onDisk('cat /etc/hostname')).toBe('mine\n')
    expect(notes).toEqual(['it has no git or no shell, which fork and create --repo need', '1 device files are left out'])
  })

  test('follow links of the image inside it, and none of them leads to the host', async () => {
    const outside = path.join(folder, 'outside')
    await mkdir(outside)
    await writeFile(path.join(outside, 'victim'), 'safe')
    await importLayers(
      [{ name: 'usr/lib/old', content: 'x' }, { name: 'lib', type: '2', linkName: 'usr/lib' }, { name: 'up', type: '2', linkName: '../../..' },
        { name: 'host', type: '2', linkName: outside }, { name: 'etc', type: '2', linkName: outside }],
      [{ name: 'lib/new', content: 'n' }, { name: 'lib/.wh.old' }, { name: 'host/planted', content: 'p' }, { name: 'host/.wh.victim' }, { name: 'up/top', content: 't' }],
    )
    expect(await namesIn('/usr/lib')).toEqual(['new'])
    expect(await onDisk('cat /top')).toBe('t')
    expect(await onDisk(`cat ${outside}/planted`)).toBe('p')
    expect(await readdir(outside)).toEqual(['victim'])
    expect((await lstat(path.join(outside, 'victim'))).size).toBe(4)
  })

  const hostile: [string, Entry[], RegExp][] = [
    ['climbs out', [{ name: '../out', content: 'x' }], /layer 1 names \.\.\/out/],
    ['climbs out within a path', [{ name: 'a/../../out', content: 'x' }], /names a\/\.\.\/\.\.\/out/],
    ['hard-links to something outside', [{ name: 'a', type: '1', linkName: '../../etc/passwd' }], /names \.\.\/\.\.\/etc\/passwd/],
    ['hard-links to a file that is not there', [{ name: 'a', type: '1', linkName: 'etc/passwd' }], /a is another name of etc\/passwd, which is not there/],
    ['hard-links to a folder', [{ name: 'd/', type: '5' }, { name: 'a', type: '1', linkName: 'd' }], /which is a folder/],
    ['puts a file below a file', [{ name: 'a', content: 'x' }, { name: 'a/b', content: 'x' }], /into a, which is no folder/],
    ['has links in a circle', [{ name: 'a', type: '2', linkName: 'b' }, { name: 'b', type: '2', linkName: 'a' }, { name: 'a/x', content: 'x' }], /is no folder/],
    ['has a sparse file', [{ name: 'a', content: 'x', pax: { 'GNU.sparse.major': '1' } }], /stored as a sparse file/],
    ['has an entry of an unknown type', [{ name: 'a', type: 'Z' }], /of a type that is not known/],
    ['hides the folder above', [{ name: '.wh...' }], /hides nothing/],
    ['has a name that is too long', [{ name: 'a', pax: { path: 'x'.repeat(256) } }], /the name x+… is too long, the limit is 255/],
    ['has a path that is too long', [{ name: 'a', pax: { path: 'x/'.repeat(2100) } }], /is too long, the limit is 4,096/],
    ['has a path that links make too long', [
      { name: 'a', pax: { path: `${'x/'.repeat(1500)}f` } }, { name: 'l', type: '2', pax: { linkpath: 'x/'.repeat(1500) } },
      { name: 'a', pax: { path: `l/${'y/'.repeat(1000)}f` } }], /is no folder|is too long/],
    ['has an endless header', [{ name: 'x', type: 'L', claimedSize: 1024 ** 3 }], /more than 1048576 bytes/],
    ['has a damaged extended header', [{ name: 'pax', type: 'x', content: '99 path=short\n' }], /an extended header in it is damaged/],
    ['has an impossible owner', [{ name: 'a', pax: { uid: '4294967295' } }], /impossible owner/],
    ['claims more bytes than there are', [{ name: 'a', claimedSize: 8 * 1024 ** 3 - 1 }], /it breaks off/],
  ]
  test.each(hostile)('are refused where one %s', async (_what, entries, message) => {
    await expect(importLayers(entries)).rejects.toMatchObject({ code: 'IMAGE_ARCHIVE_INVALID', message: expect.stringMatching(message) as string })
    expect((await readdir(images)).filter((name) => name.startsWith('.building-'))).toEqual([])
  })

  test('are refused when they have too many files, or names that are too long together', () => {
    const entry = { type: 'symlink' as const, mode: 0, uid: 0, gid: 0, mtimeSeconds: 0, sizeBytes: 0, xattrs: new Map<string, Buffer>() }
    const long = 'x'.repeat(4000)
    const fill = (count: number, name: string, linkName: string) => () => {
      const tree = new LayerTree()
      for (let n = 0; n < count; n += 1) tree.add({ ...entry, name: `${n}${name}`, linkName }, 1, n)
    }
    expect(fill(67_200, '', long)).toThrow('its names are too long together, the limit is 268,435,456')
    // Folders that are only implied count too.
    expect(fill(501, '/x'.repeat(2000), 'x')).toThrow('its layers have too many files, the limit is 1,000,000')
  })

  test('name the same file twice: the last one counts', async () => {
    await importLayers([{ name: './f', content: 'first' }, { name: '/f', content: 'second' }, { name: 'g', content: 'file' }, { name: 'g', type: '5' }])
    expect(await onDisk('cat /f')).toBe('second')
    expect(await onDisk('stat /g')).toContain('Type: directory')
  })
})

describe('an import', () => {
  test('takes environment and working directory over, and says that commands run as root', async () => {
    const config = { Env: ['PATH=/opt/bin:/bin', 'GREETING=hello world', 'BAD', 'LINES=a\nb'], WorkingDir: '/srv/app', User: 'node' }
    const { image, notes } = await importFile(archiveOf(dockerFiles([tar(HELLO)], { config })))
    expect(await onDisk('cat /etc/kosa8/environment')).toBe('PATH=/opt/bin:/bin\nGREETING=hello world\n')
    expect(await onDisk('stat /srv/app')).toContain('Type: directory')
    expect(image.imported?.workingDirectory).toBe('/srv/app')
    expect(notes.join('\n')).toMatch(/line break[^]*kosa8 exec -u node/)
  })

  test('needs room for what the layers unpack to, and says so before it writes', async () => {
    const bomb = await ociFiles([{ layers: [tar([{ name: 'zeros', content: Buffer.alloc(20_000_000) }])] }])
    expect(archiveOf(bomb).length).toBeLessThan(1_000_000)
    await importFile(archiveOf(await ociFiles([{ layers: [tar(HELLO)] }])), { name: 'small' })
    await expect(importFile(archiveOf(bomb), { readFreeBytes: async () => 60_000_000 })).rejects.toMatchObject({ code: 'DISK_FULL' })
    await expect(importFile(archiveOf(bomb), { diskMib: 64 })).rejects.toMatchObject({
      code: 'USAGE', message: expect.stringMatching(/need a disk of at least \d+ MiB, not 64/) as string,
    })
    expect((await readdir(images)).sort()).toEqual(['.lock', '.sources', 'base', 'small'])
  })

  test('that is cancelled leaves nothing', async () => {
    for (const title of ['read the layers', 'put the layers together', 'make the root file system']) {
      const cancellation = new AbortController()
      const onProgress: ImportImageOptions['onProgress'] = (progress) => {
        if (progress.title === title && progress.image !== 'base') cancellation.abort()
      }
      const made = importFile(archiveOf(dockerFiles([tar(HELLO)])), { name: 'demo', signal: cancellation.signal, onProgress })
      await expect(made).rejects.toMatchObject({ code: 'CANCELLED' })
    }
    expect((await readdir(images)).filter((name) => name !== 'base').sort()).toEqual(['.lock', '.sources'])
  })

  test('has a name of its own: one that kosa8 builds, or none at all, is refused', async () => {
    const archive = archiveOf(dockerFiles([tar(HELLO)], { reference: 'registry.example:5000/team/base:latest' }))
    await expect(importFile(archive)).rejects.toMatchObject({ code: 'USAGE', hint: expect.stringContaining('--name') as string })
    await expect(importFile(archive, { name: 'No Such' })).rejects.toMatchObject({ code: 'USAGE' })
    expect((await importFile(archive, { name: 'mine' })).image.name).toBe('mine')
  })

  test.each([
    ['is not there', () => undefined, { code: 'USAGE', message: /^there is no file or folder \S+image\.tar$/, hint: /^give a file made by `docker save`/ }],
    ['may not be read', (file: string) => symlink('/proc/sys/vm/compact_memory', file), { code: 'USAGE', message: /image\.tar cannot be read: EACCES/, hint: /^give a file/ }],
    ['is a folder without an image', (file: string) => mkdir(file), { code: 'IMAGE_ARCHIVE_INVALID', message: /neither an index\.json .* nor a manifest\.json/, hint: /^save the image again/ }],
    ['is a named pipe', (file: string) => runProgram('mkfifo', [file]), { code: 'USAGE', message: /is neither a file nor a folder$/, hint: /^give a file/ }],
    ['is empty', (file: string) => writeFile(file, ''), { code: 'IMAGE_ARCHIVE_INVALID', message: /is no tar archive, or an empty one$/, hint: /^save the image again/ }],
    ['is a text', (file: string) => writeFile(file, 'text\n'.repeat(200)), { code: 'IMAGE_ARCHIVE_INVALID', message: /^the archive cannot be imported: /, hint: /^save the image again/ }],
  ])('that %s is refused before any work begins, also that of the base image', async (_what, make, { code, message, hint }) => {
    const file = path.join(folder, 'image.tar')
    await make(file)
    const imagesDirectory = path.join(folder, 'images')
    const titles: string[] = []
    await expect(importFrom(file, { imagesDirectory, onProgress: ({ title }) => titles.push(title) })).rejects.toMatchObject({
      code, message: expect.stringMatching(message) as string, hint: expect.stringMatching(hint) as string,
    })
    expect(titles).toEqual([])
    await expect(readdir(imagesDirectory)).rejects.toMatchObject({ code: 'ENOENT' })
  })
})
