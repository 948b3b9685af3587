import { once } from 'node:events'
import { readdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { removeAbandonedTemporaries, temporaryNameFor, writeFileAtomic } from '../../src/util/atomic-write.js'
import { spawnProgram } from '../../src/util/spawn.js'
import { temporaryFolder } from '../daemon-server/serve.js'

describe('the temporary files of a folder', () => {
  it('go once their writer has died, and only then', async () => {
    const folder = await temporaryFolder()
    const own = temporaryNameFor(path.join(folder, 'm-1.json'))
    const dead = spawnProgram('true', [], { stdio: 'ignore' })
    await once(dead, 'exit')
    const abandoned = path.basename(own).replace(/\.\d+-\d+\./, `.${dead.pid}-1.`)
    const kept = [path.basename(own), 'm-1.json', '.hidden', '.m-2.json.tmp'].sort()
    for (const name of [abandoned, ...kept]) await writeFile(path.join(folder, name), '')
    await removeAbandonedTemporaries(folder)
    expect((await readdir(folder)).sort()).toEqual(kept)
    await removeAbandonedTemporaries(path.join(folder, 'not there'))
  })

  it('are none when a file was written', async () => {
    const folder = await temporaryFolder()
    await writeFileAtomic(path.join(folder, 'a'), 'text')
    expect(await readdir(folder)).toEqual(['a'])
  })
})
