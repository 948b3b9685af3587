import { chmod, mkdtemp, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { readSettings } from '../../src/config/environment.js'
import { createMachineId, type RunId } from '../../src/model/ids.js'
import { createPaths, preparePaths } from '../../src/store/paths.js'

let folder: string
beforeEach(async () => { folder = await mkdtemp(path.join(tmpdir(), 'kosa8-paths-')) })
afterEach(() => rm(folder, { recursive: true }))

describe('the layout of the state home', () => {
  it('keeps sockets in a short home', () => {
    const paths = createPaths('/home/u/.kosa8')
    expect(paths.daemonSocket).toBe('/home/u/.kosa8/daemon.sock')
    expect(path.dirname(paths.machineDirectory(createMachineId()))).toBe('/home/u/.kosa8/machines')
  })

  it.each([50, 55, 56, 57, 70, 200])('leaves room for every socket with a home of %i bytes', (length) => {
    const paths = createPaths(`/${'h'.repeat(length - 1)}`)
    const longest = path.join(paths.machineDirectory(createMachineId()), 's'.repeat(24))
    for (const socket of [longest, paths.daemonSocket, paths.redisSocket]) {
      expect(Buffer.byteLength(socket)).toBeLessThanOrEqual(107)
    }
  })

  it.each([20, 53, 54, 80, 95, 96, 200])('is where clients look for the daemon too, with a home of %i bytes', (length) => {
    const home = `/${'h'.repeat(length - 1)}`
    expect(readSettings({ KOSA8_HOME: home }).socketPath).toBe(createPaths(home).daemonSocket)
  })

  it('gives two long homes two socket folders, and one home always the same', () => {
    const [one, two] = ['a', 'b'].map((letter) => createPaths(`/${letter.repeat(120)}`).socketRoot)
    expect(one).not.toBe(two)
    expect(createPaths(`/${'a'.repeat(120)}`).socketRoot).toBe(one)
  })

  it('takes images from elsewhere when told', () => {
    expect(createPaths('/home/u/.kosa8', '/srv/images').images).toBe('/srv/images')
  })

  it('makes every folder for this user only', async () => {
    const paths = createPaths(path.join(folder, 'home'))
    await preparePaths(paths)
    for (const made of [paths.home, paths.runs, paths.redis, paths.layers, path.dirname(paths.redisSocket)]) {
      expect((await stat(made)).mode & 0o777).toBe(0o700)
    }
    await preparePaths(paths)
  })

  it('refuses a home that others can write to', async () => {
    await chmod(folder, 0o777)
    await expect(preparePaths(createPaths(folder))).rejects.toMatchObject({ code: 'CONFIG_INVALID', details: { folder } })
  })

  it('never leaves its folder, whatever an id says', () => {
    const paths = createPaths('/home/u/.kosa8')
    for (const id of ['..', '', '../../etc', 'a/b', 'a\0b']) expect(() => paths.runDirectory(id as RunId)).toThrow()
  })
})
