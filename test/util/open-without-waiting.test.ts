import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { readApproachText } from '../../src/config/approach-files.js'
import { readProjectFile } from '../../src/config/project-file.js'
import { openWithoutWaiting } from '../../src/util/open-without-waiting.js'
import { runProgram } from '../../src/util/spawn.js'
import { temporaryFolder } from '../daemon-server/serve.js'

async function folderWithPipe(name: string): Promise<string> {
  const folder = await temporaryFolder()
  await runProgram('mkfifo', [path.join(folder, name)])
  return folder
}

describe('a file that somebody else has made', () => {
  it('is opened for reading', async () => {
    const file = path.join(await temporaryFolder(), 'a')
    await writeFile(file, 'text')
    const handle = await openWithoutWaiting(file)
    expect(await handle.readFile('utf8')).toBe(await readFile(file, 'utf8'))
    await handle.close()
  })

  it('is not waited for when it is a named pipe nobody writes to', async () => {
    const handle = await openWithoutWaiting(path.join(await folderWithPipe('a'), 'a'))
    expect((await handle.stat()).isFIFO()).toBe(true)
    await handle.close()
  })

  it('is refused as kosa8.yaml or an approach when it is a named pipe', async () => {
    await expect(readProjectFile(await folderWithPipe('kosa8.yaml'))).rejects.toMatchObject({ code: 'CONFIG_INVALID', message: 'kosa8.yaml is not a regular file' })
    await expect(readApproachText(await folderWithPipe('a.sh'), 'a.sh')).rejects.toMatchObject({ code: 'APPROACH_INVALID', message: 'a.sh is not a regular file' })
  })
})
