/** The command's own process: what becomes of it when its output cannot be written. */
import { execFile } from 'node:child_process'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { findPackageRoot } from '../../src/util/package-root.js'

const run = promisify(execFile)
const CLI = path.join(findPackageRoot(), 'dist/src/cli/main.js')

/** Types a line into a shell. */
async function type(line: string): Promise<{ status: number; stderr: string }> {
  return run('sh', ['-c', line, process.execPath, CLI]).then(
    ({ stderr }) => ({ status: 0, stderr }),
    (failed: { code: number; stderr: string }) => ({ status: failed.code, stderr: failed.stderr }),
  )
}

it('output that a full disk does not take is one line and status 3, and a reader that goes is nothing', async () => {
  expect(await type('"$0" "$1" fork --help >/dev/full')).toEqual({
    status: 3, stderr: 'kosa8: the output cannot be written: ENOSPC: no space left on device, write\n',
  })
  expect(await type('"$0" "$1" fork --help 2>/dev/full | true')).toEqual({ status: 0, stderr: '' })
  expect(await type('"$0" "$1" nonsense 2>/dev/full')).toEqual({ status: 2, stderr: '' })
})
