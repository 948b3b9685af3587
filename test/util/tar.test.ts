import { existsSync } from 'node:fs'
import { chmod, lstat, mkdir, readdir, readFile, readlink, stat, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { Readable } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { runProgram } from '../../src/util/spawn.js'
import { unpackTar } from '../../src/util/tar.js'
import { temporaryFolder } from '../daemon-server/serve.js'

const MIB = 1024 * 1024
const LONG_NAME = Buffer.alloc(MIB, 'x')

interface Header { name: string; type?: string; size?: number; linkName?: string }

function header({ name, type = '0', size = 0, linkName = '' }: Header): Buffer {
  const block = Buffer.alloc(512)
  block.write(name, 0, 100)
  block.write('0000644\0', 100)
  block.write(`${size.toString(8).padStart(11, '0')}\0`, 124)
  block.write('        ', 148)
  block.write(type, 156)
  block.write(linkName, 157, 100)
  block.write(`${block.reduce((sum, byte) => sum + byte, 0).toString(8).padStart(6, '0')}\0 `, 148)
  return block
}

function content(text: string): Buffer {
  return Buffer.concat([Buffer.from(text), Buffer.alloc((512 - text.length % 512) % 512)])
}

async function unpack(blocks: Buffer[]) {
  const folder = path.join(await temporaryFolder(), 'in')
  await mkdir(folder)
  return { folder, unpacked: await unpackTar(Readable.from([...blocks, Buffer.alloc(1024)]), folder) }
}

describe('a tar archive', () => {
  it.each(['gnu', 'pax', 'ustar'])('of GNU tar in format %s comes out as it was', async (format) => {
    const source = path.join(await temporaryFolder(), 'source')
    const deep = path.join(...Array.from({ length: 4 }, () => 'a-folder-with-a-long-name'))
    await mkdir(path.join(source, deep), { recursive: true })
    await writeFile(path.join(source, deep, 'ünïcode.txt'), 'deep')
    await writeFile(path.join(source, 'run.sh'), '#!/bin/sh\n')
    await chmod(path.join(source, 'run.sh'), 0o755)
    await writeFile(path.join(source, 'large'), Buffer.alloc(1_000_001, 7))
    await symlink('run.sh', path.join(source, 'link'))
    const { stdout } = await runProgram('tar', ['-C', source, `--format=${format}`, '-cf', '-', '.'])
    const folder = path.join(await temporaryFolder(), 'target')
    await mkdir(folder)
    const chunks = Array.from({ length: Math.ceil(stdout.length / 700) }, (_, n) => stdout.subarray(n * 700, n * 700 + 700))
    expect(await unpackTar(Readable.from(chunks), folder)).toMatchObject({ files: 3, skipped: [] })
    expect(await readFile(path.join(folder, deep, 'ünïcode.txt'), 'utf8')).toBe('deep')
    expect((await stat(path.join(folder, 'run.sh'))).mode & 0o777).toBe(0o755)
    expect((await readFile(path.join(folder, 'large'))).equals(Buffer.alloc(1_000_001, 7))).toBe(true)
    expect(await readlink(path.join(folder, 'link'))).toBe('run.sh')
  })

  it.each([
    ['climbs out', [header({ name: '../out', size: 1 }), content('x')]],
    ['climbs out within a path', [header({ name: 'a/../../out', size: 1 }), content('x')]],
    ['links hard to something outside', [header({ name: 'a', type: '1', linkName: '../../etc/passwd' })]],
    ['breaks off', [header({ name: 'a', size: 5000 }), content('x')]],
    ['has a damaged header', [Buffer.alloc(512, 1)]],
    ['has more names than are worth keeping', Array.from({ length: 257 }, () => [header({ name: 'x', type: 'L', size: MIB }), LONG_NAME, header({ name: 'x', type: '6' })]).flat()],
    ['has an endless name', [header({ name: 'x', type: 'L', size: 1024 ** 3 })]],
  ])('that %s is refused', async (_what, blocks) => {
    await expect(unpack(blocks)).rejects.toMatchObject({ code: 'GUEST_PROTOCOL' })
  })

  it('cannot write through a link of its own', async () => {
    const outside = await temporaryFolder()
    const blocks = [header({ name: 'door', type: '2', linkName: outside }), header({ name: 'door/file', size: 1 }), content('x')]
    await expect(unpack(blocks)).rejects.toThrow('EEXIST')
    expect(await readdir(outside)).toEqual([])
  })

  it('has absolute names taken as names inside', async () => {
    const { folder } = await unpack([header({ name: '/etc/kosa8-test', size: 1 }), content('x')])
    expect(await readFile(path.join(folder, 'etc', 'kosa8-test'), 'utf8')).toBe('x')
    expect(existsSync('/etc/kosa8-test')).toBe(false)
  })

  it('makes no devices or pipes', async () => {
    const { folder, unpacked } = await unpack([header({ name: 'disk', type: '4' }), header({ name: 'pipe', type: '6' }), header({ name: 'a', size: 1 }), content('x')])
    expect(unpacked.skipped).toEqual(['disk', 'pipe'])
    expect(await readdir(folder)).toEqual(['a'])
    expect((await lstat(path.join(folder, 'a'))).isFile()).toBe(true)
  })
})
