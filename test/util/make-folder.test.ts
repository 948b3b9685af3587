import { stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { makeFolder } from '../../src/util/make-folder.js'
import { temporaryFolder } from '../daemon-server/serve.js'

describe('a folder that is made', () => {
  it('has those above it, all of the mode asked for, and may be there already', async () => {
    const root = await temporaryFolder()
    await makeFolder(path.join(root, 'a', 'b'), 0o700)
    await makeFolder(path.join(root, 'a', 'b'), 0o700)
    for (const name of ['a', 'a/b']) expect((await stat(path.join(root, name))).mode & 0o777, name).toBe(0o700)
  })

  it('cannot lie where a file is, nor below one', async () => {
    const file = path.join(await temporaryFolder(), 'file')
    await writeFile(file, '')
    await expect(makeFolder(file)).rejects.toMatchObject({ code: 'EEXIST' })
    await expect(makeFolder(path.join(file, 'below'))).rejects.toMatchObject({ code: 'ENOTDIR' })
  })

  it('is given up where nothing can be made, although nothing above it is missing', async () => {
    await expect(makeFolder('/proc/kosa8/below')).rejects.toMatchObject({ code: 'ENOENT' })
  })
})
