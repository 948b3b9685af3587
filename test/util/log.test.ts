import { once } from 'node:events'
import { openSync } from 'node:fs'
import path from 'node:path'
import { expect, it } from 'vitest'
import { spawnProgram } from '../../src/util/spawn.js'

it('a process whose log finds the disk full goes on', async () => {
  const log = path.resolve(import.meta.dirname, '../../src/util/log.ts')
  const program = `import { createJiti } from 'jiti'
const { openLog } = await createJiti(process.cwd() + '/x').import(${JSON.stringify(log)})
const log = openLog('x')
log.info('one')
setImmediate(() => { log.info('two'); setTimeout(() => { process.stderr.write('went on'); process.exit(0) }, 50) })`
  const child = spawnProgram(process.execPath, ['--input-type=module', '--eval', program], {
    cwd: path.resolve(import.meta.dirname, '../..'), stdio: ['ignore', openSync('/dev/full', 'w'), 'pipe'],
  })
  let told = ''
  child.stderr!.on('data', (text: Buffer) => { told += text.toString() })
  expect(await once(child, 'close')).toEqual([0, null])
  expect(told).toBe('went on')
})
