import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { Kosa8Error } from '../../src/errors/kosa8-error.js'
import { readFreeSpace, tellDiskFull } from '../../src/util/disk-space.js'
import { temporaryFolder } from '../daemon-server/serve.js'

const noSpace = Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' })

describe('a disk that is full', () => {
  it('is told with what was being done, which disk, what is needed and free, what is kept, and what to do', async () => {
    const folder = await temporaryFolder()
    const cause = new Kosa8Error('DISK_FULL', 'full', { details: { neededBytes: 310 * 2 ** 20 - 1 } })
    const told = await tellDiskFull(cause, { what: 'checkpoint a-ckpt-3', folder, kept: 'a goes on' })
    expect(told).toMatchObject({
      code: 'DISK_FULL', hint: expect.stringContaining('run the same command again') as string,
      message: expect.stringMatching(new RegExp(`^checkpoint a-ckpt-3 needs 310 MiB on the disk of ${folder}, where \\d+ MiB are free; nothing was lost: a goes on$`)) as string,
    })
    expect(await tellDiskFull(noSpace, { what: 'x', folder, kept: 'y' })).toMatchObject({ code: 'DISK_FULL', details: { neededBytes: 2 ** 20 } })
  })

  it('is no explanation for another failure', async () => {
    const other = new Kosa8Error('MACHINE_GONE', 'gone')
    expect(await tellDiskFull(other, { what: 'x', folder: '/', kept: 'y' })).toBe(other)
  })

  it('is looked at where a folder is to be made later, too', async () => {
    const folder = await temporaryFolder()
    expect((await readFreeSpace(path.join(folder, 'not', 'yet'))).bytes).toBeGreaterThan(0)
  })
})
