import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { ApproachPlan } from '../../src/model/run.js'
import { checkStrategies } from '../../src/orchestrator/strategy-check.js'

let folder: string

beforeAll(async () => { folder = await mkdtemp(path.join(tmpdir(), 'kosa8-check-')) })
afterAll(() => rm(folder, { recursive: true }))

async function approach(name: string, source: string, parameters: Record<string, unknown> = {}): Promise<ApproachPlan> {
  const file = path.join(folder, `${name}.ts`)
  await writeFile(file, source)
  return { approach: name, label: name, strategy: { kind: 'module', path: file }, parameters }
}

const PICKY = `export default {
  validate({ depth }: { depth?: unknown }) { if (typeof depth !== 'number') throw new Error('depth must be a number') },
  async run() { return { exitCode: 0 } },
}`

it('a module that accepts its parameters is fine, and so is one that does not look', async () => {
  await checkStrategies([await approach('picky', PICKY, { depth: 3 }), await approach('easy', 'export default { run: async () => ({ exitCode: 0 }) }')])
})

it.each([
  ['refuses its parameters', PICKY, 'approach bad: depth must be a number'],
  ['cannot be loaded', 'import "./not-there.js"', /bad\.ts could not be loaded: .*not-there/],
  ['is no strategy', 'export default 7', /bad\.ts has no default export with a run function/],
  ['throws as it is loaded', 'throw new Error("no key")', /bad\.ts could not be loaded: no key/],
  ['ends the process', 'process.exit(0)', /bad\.ts ended the process while being loaded/],
  ['never ends to load', 'for (;;);', /bad\.ts did not load within 3000 ms/],
])('a module that %s is refused before anything starts, and this process goes on', async (_what, source, message) => {
  await expect(checkStrategies([await approach('bad', source)], 3_000))
    .rejects.toMatchObject({ code: 'APPROACH_INVALID', message: expect.stringMatching(message) as string })
})
