/**
 * `kosa8 fork` as somebody types it, with approaches and tests that do nothing but wait: what is left of the time is ours.
 */
import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { runProgram } from '../../src/util/spawn.js'
import type { Bed } from '../bed.js'
import { withHome } from '../command-line.js'
import type { Series } from '../statistics.js'

const STRATEGY_S = 4
const TESTS_S = 2
const FILES = {
  'kosa8.yaml': 'image: base\nmem: 256M\ntest: sh test.sh\n',
  'test.sh': `sleep ${TESTS_S}; echo "1..1"; test -f made && echo "ok 1 - made" || echo "not ok 1 - made"\n`,
  '.kosa8/approaches/a.sh': `sleep ${STRATEGY_S}; echo a > made\n`,
  '.kosa8/approaches/b.sh': `sleep ${STRATEGY_S}; echo b > made\n`,
}

/** Measures `samples` runs of two approaches, the baseline and both trials at once. */
export async function measureForkRun(bed: Bed, samples: number): Promise<Series[]> {
  const folder = path.join(bed.scratch, 'fork-run')
  const repository = path.join(folder, 'repository')
  await makeRepository(repository)
  const overhead: number[] = []
  await withHome(folder, async (type) => {
    for (let sample = 0; sample < samples; sample++) {
      bed.signal.throwIfAborted()
      const { ms } = await type('fork', '--repo', repository, '--approaches', 'a,b', '--parallel', '3', '--json')
      overhead.push(ms - 1000 * (STRATEGY_S + TESTS_S))
    }
  })
  return [{ label: 'kosa8 fork: time beside strategy and tests', unit: 'ms', values: overhead }]
}

async function makeRepository(folder: string): Promise<void> {
  for (const [name, content] of Object.entries(FILES)) {
    await mkdir(path.join(folder, path.dirname(name)), { recursive: true })
    await writeFile(path.join(folder, name), content)
  }
  const identity = ['-c', 'user.name=bench', '-c', 'user.email=bench@localhost']
  for (const args of [['init', '--quiet'], ['add', '.'], [...identity, 'commit', '--quiet', '-m', 'base']]) {
    const { code, stderr } = await runProgram('git', ['-C', folder, ...args])
    if (code !== 0) throw new Error(`git ${args.join(' ')} ended with ${code}: ${stderr.toString()}`)
  }
}
