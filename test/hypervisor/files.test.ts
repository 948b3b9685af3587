import { mkdtemp, open, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { copyMemoryFile, createMemoryFile, readExtents, writeExtents } from '../../src/hypervisor/qemu/memory-file.js'
import { createBaseOverlay, createLayerOverlay, freezeLayer, removeLayer } from '../../src/hypervisor/qemu/overlay.js'
import { parseProcessor } from '../../src/hypervisor/qemu/processor.js'
import { decodeExtents, encodeExtents, mergeExtents, PAGE_BYTES } from '../../src/util/extents.js'
import { createOverlay, readOverlayHeader } from '../../src/util/qcow2.js'
import { runProgram } from '../../src/util/spawn.js'

let folder: string
beforeEach(async () => { folder = await mkdtemp(path.join(tmpdir(), 'kosa8-files-')) })
afterEach(() => rm(folder, { recursive: true }))

describe('an overlay', () => {
  it('is one that qemu-img finds flawless and reads through, down to the root disk', async () => {
    await writeFile(path.join(folder, 'root'), Buffer.alloc(3 * 1024 * 1024, 'x'))
    await createBaseOverlay(folder, 'a.qcow2', path.join(folder, 'root'), null)
    await createLayerOverlay(folder, 'b.qcow2', 'a.qcow2')
    const top = path.join(folder, 'b.qcow2')
    expect((await runProgram('qemu-img', ['check', '-q', top])).code).toBe(0)
    const compared = await runProgram('qemu-img', ['compare', '-q', '-F', 'qcow2', '-f', 'raw', path.join(folder, 'root'), top])
    expect(compared.code).toBe(0)
    expect(await readOverlayHeader(top)).toEqual({ virtualBytes: 3 * 1024 * 1024, backingName: 'a.qcow2' })
  })

  it('names the root disk relative to itself', async () => {
    await writeFile(path.join(folder, 'root'), 'x'.repeat(512))
    await createBaseOverlay(folder, 'a.qcow2', path.join(folder, 'root'), null)
    expect((await readOverlayHeader(path.join(folder, 'a.qcow2'))).backingName).toBe('root')
  })

  it('is as large as was asked for, above the root disk all zeros, and so are those on top of it', async () => {
    await writeFile(path.join(folder, 'root'), Buffer.alloc(1024 * 1024, 'x'))
    await createBaseOverlay(folder, 'a.qcow2', path.join(folder, 'root'), 3)
    await createLayerOverlay(folder, 'b.qcow2', 'a.qcow2')
    const grown = path.join(folder, 'grown')
    await writeFile(grown, Buffer.concat([Buffer.alloc(1024 * 1024, 'x'), Buffer.alloc(2 * 1024 * 1024)]))
    const compared = await runProgram('qemu-img', ['compare', '-q', '-F', 'qcow2', '-f', 'raw', grown, path.join(folder, 'b.qcow2')])
    expect(compared.code).toBe(0)
    expect((await readOverlayHeader(path.join(folder, 'b.qcow2'))).virtualBytes).toBe(3 * 1024 * 1024)
  })

  it('stays when it is frozen, and goes when it is not', async () => {
    await createOverlay(path.join(folder, 'a.qcow2'), { virtualBytes: 4096, backingName: 'x', backingFormat: 'raw' })
    await freezeLayer(folder, 'a.qcow2')
    await removeLayer(folder, 'a.qcow2')
    expect((await stat(path.join(folder, 'a.qcow2'))).isFile()).toBe(true)
    await createOverlay(path.join(folder, 'b.qcow2'), { virtualBytes: 4096, backingName: 'x', backingFormat: 'raw' })
    await removeLayer(folder, 'b.qcow2')
    await expect(stat(path.join(folder, 'b.qcow2'))).rejects.toThrow('ENOENT')
  })

  it.each([
    ['an empty file', Buffer.alloc(0)],
    ['a text', Buffer.from('not a disk at all, but long enough for a header')],
    ['a name beyond the header', (() => {
      const bytes = Buffer.alloc(64)
      bytes.writeUInt32BE(0x514649fb, 0)
      bytes.writeBigUInt64BE(1n << 60n, 8)
      bytes.writeUInt32BE(8, 16)
      return bytes
    })()],
  ])('is not read out of %s', async (_, bytes) => {
    await writeFile(path.join(folder, 'x'), bytes)
    await expect(readOverlayHeader(path.join(folder, 'x'))).rejects.toThrow(RangeError)
  })
})

describe('extents', () => {
  it('are merged in order, gaps up to the limit joined', () => {
    const extents = [{ firstPage: 10, pageCount: 2 }, { firstPage: 0, pageCount: 3 }, { firstPage: 5, pageCount: 1 }, { firstPage: 11, pageCount: 4 }]
    expect(mergeExtents(extents)).toEqual([
      { firstPage: 0, pageCount: 3 }, { firstPage: 5, pageCount: 1 }, { firstPage: 10, pageCount: 5 }])
    expect(mergeExtents(extents, 2)).toEqual([{ firstPage: 0, pageCount: 6 }, { firstPage: 10, pageCount: 5 }])
  })

  it('survive their binary form, and damaged forms are refused', () => {
    const extents = [{ firstPage: 1, pageCount: 2 }, { firstPage: 7, pageCount: 1 }]
    const bytes = encodeExtents(extents)
    expect(decodeExtents(bytes, 8)).toEqual(extents)
    expect(() => decodeExtents(bytes, 7)).toThrow(RangeError)
    expect(() => decodeExtents(bytes.subarray(0, 12), 8)).toThrow(RangeError)
    expect(() => decodeExtents(Buffer.concat([bytes.subarray(8), bytes.subarray(0, 8)]), 8)).toThrow(RangeError)
  })
})

describe('a memory file', () => {
  it('is copied with its data in place and its holes not filled', async () => {
    const sizeBytes = 64 * 1024 * 1024
    const source = path.join(folder, 'source')
    await createMemoryFile(source, sizeBytes)
    const handle = await open(source, 'r+')
    await handle.write(Buffer.alloc(PAGE_BYTES, 'a'), 0, PAGE_BYTES, 5000 * PAGE_BYTES)
    await handle.close()
    await writeExtents(source, [{ firstPage: 5000, pageCount: 1 }])
    expect(await readExtents(source, sizeBytes)).toEqual([{ firstPage: 5000, pageCount: 1 }])
    await copyMemoryFile(source, path.join(folder, 'target'), sizeBytes)
    const target = await stat(path.join(folder, 'target'))
    expect(target.size).toBe(sizeBytes)
    expect(target.blocks * 512).toBeLessThan(1024 * 1024)
    expect((await readFile(source)).equals(await readFile(path.join(folder, 'target')))).toBe(true)
  })
})

describe('the frequency of the time stamp counter', () => {
  const text = (flags: string): string => `processor\t: 0\nmodel name\t: Some CPU\ncpu MHz\t\t: 2445.426\nflags\t\t: ${flags}\n`

  it('is taken from a virtual host, whose kernel shows it', () => {
    expect(parseProcessor(text('fpu constant_tsc hypervisor'))).toEqual({ name: 'Some CPU', tscKhz: 2_445_426 })
  })

  it.each(['fpu constant_tsc', 'fpu constant_tsc hypervisor aperfmperf', 'fpu hypervisor'])('is unknown with flags %s', (flags) => {
    expect(parseProcessor(text(flags)).tscKhz).toBeNull()
  })
})
