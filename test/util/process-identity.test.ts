/** Which processes count as alive. */
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { isProcessAlive, readProcessIdentity, type ProcessIdentity } from '../../src/util/process-identity.js'
import { runProgram, spawnProgram } from '../../src/util/spawn.js'
import { temporaryFolder } from '../daemon-server/serve.js'

/** Its first thread ends, its second stays. */
const PROGRAM = `#include <pthread.h>
#include <unistd.h>
static void *stay(void *unused) { for (;;) pause(); return unused; }
int main(void) { pthread_t thread; pthread_create(&thread, NULL, stay, NULL); pthread_exit(NULL); }
`

it('are those of which any thread is left: their files and sockets are open until then', async () => {
  const folder = await temporaryFolder()
  await writeFile(path.join(folder, 'p.c'), PROGRAM)
  expect(await runProgram('cc', ['-pthread', '-o', path.join(folder, 'p'), path.join(folder, 'p.c')])).toMatchObject({ code: 0 })
  const child = spawnProgram(path.join(folder, 'p'), [], { stdio: 'ignore' })
  const pid = child.pid as number
  while (!/\) Z /.test(await readFile(`/proc/${pid}/stat`, 'latin1'))) await nextTurn()
  const identity = readProcessIdentity(pid)
  expect(identity).not.toBeNull()
  child.kill('SIGKILL')
  await once(child, 'exit')
  expect(isProcessAlive(identity as ProcessIdentity)).toBe(false)
})
