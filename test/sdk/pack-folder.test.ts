import { link, mkdir, symlink, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { packFolder } from '../../src/sdk/pack-folder.js'
import { runProgram } from '../../src/util/spawn.js'
import { temporaryFolder } from '../daemon-server/serve.js'

/** Packs a folder and lists the archive as tar sees it, each name with its kind before it. */
async function pack(folder: string): Promise<{ names: string[]; skipped: string[] }> {
  const { archive, finished } = packFolder(folder)
  const { stdout } = await runProgram('tar', ['--quoting-style=escape', '-tvf', '-'], { stdin: archive })
  const names = stdout.toString('latin1').trimEnd().split('\n').map((line) => `${line[0]} ${line.replace(/^(\S+\s+){5}/, '')}`)
  return { names: names.sort(), skipped: (await finished).sort() }
}

describe('a folder on its way into a sandbox', () => {
  it('is packed whole: folders, empty ones too, files, links of both kinds, and names that are no text', async () => {
    const folder = await temporaryFolder()
    await mkdir(path.join(folder, 'sub', 'empty'), { recursive: true })
    await writeFile(path.join(folder, 'sub', '-x new\nline'), 'text')
    await writeFile(Buffer.concat([Buffer.from(`${folder}/`), Buffer.of(0xff)]), 'text')
    await symlink('/dev/zero', path.join(folder, 'soft'))
    await link(path.join(folder, 'sub', '-x new\nline'), path.join(folder, 'sub', 'again'))
    const { names, skipped } = await pack(folder)
    expect(names).toEqual([
      '- ./\\377', expect.stringMatching(/^- \.\/sub\/(-x new\\nline|again)$/), 'd ./', 'd ./sub/', 'd ./sub/empty/',
      expect.stringMatching(/^h \.\/sub\/.* link to \.\/sub\//), 'l ./soft -> /dev/zero',
    ])
    expect(skipped).toEqual([])
  })

  it('is packed without its named pipes and sockets, which are named and never opened', async () => {
    const folder = await temporaryFolder()
    await mkdir(path.join(folder, 'run'))
    await writeFile(path.join(folder, 'file'), 'text')
    await runProgram('mkfifo', [path.join(folder, 'pipe'), path.join(folder, 'run', 'pipe')])
    const server = createServer().listen(path.join(folder, 'run', 'socket'))
    const { names, skipped } = await pack(folder)
    server.close()
    expect(names).toEqual(['- ./file', 'd ./', 'd ./run/'])
    expect(skipped).toEqual(['./pipe', './run/pipe', './run/socket'])
  })

  it('that cannot be read in full is an error that says what could not be read', async () => {
    const folder = path.join(await temporaryFolder(), 'gone')
    await expect(packFolder(folder).finished).rejects.toMatchObject({ code: 'USAGE', message: expect.stringMatching(/^packing \S+\/gone failed: /) as string })
  })

  it('ends with its process when it is given up', async () => {
    const packed = packFolder('/usr')
    packed.archive.once('readable', () => packed.stop())
    await expect(packed.finished).rejects.toMatchObject({ code: 'USAGE' })
  })
})
