import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { planApproaches } from '../../src/config/approaches.js'
import type { Matrix } from '../../src/config/project-defaults.js'
import { parseProjectFile } from '../../src/config/project-file.js'
import { temporaryFolder } from '../daemon-server/serve.js'

interface Case { names: string[]; yaml?: string; files?: Record<string, string | Uint8Array>; matrix?: Matrix; repeats?: number }

async function plan({ names, yaml = '', files = {}, matrix = {}, repeats = 1 }: Case) {
  const folder = await temporaryFolder()
  for (const [name, content] of Object.entries(files)) {
    await mkdir(path.dirname(path.join(folder, name)), { recursive: true })
    await writeFile(path.join(folder, name), content)
  }
  const plans = await planApproaches({ names, folder, project: parseProjectFile(yaml), matrix, repeats, trialsMax: 256 })
  return { folder, plans }
}

describe('an approach name', () => {
  it('is looked up in kosa8.yaml first, then among the files', async () => {
    const { plans, folder } = await plan({
      names: ['a', 'b', 'c', 'd'],
      yaml: 'approaches: {a: {strategy: command, run: make, level: 3}}',
      files: { '.kosa8/approaches/a.sh': 'echo file', '.kosa8/approaches/b.sh': '#!/bin/sh\necho b\n', '.kosa8/approaches/c.patch': 'diff', '.kosa8/approaches/d.ts': 'export default {}' },
    })
    expect(plans).toEqual([
      { approach: 'a', label: 'a', strategy: { kind: 'builtin', name: 'command' }, parameters: { run: 'make', level: 3 } },
      { approach: 'b', label: 'b', strategy: { kind: 'builtin', name: 'script' }, parameters: { content: '#!/bin/sh\necho b\n' } },
      { approach: 'c', label: 'c', strategy: { kind: 'builtin', name: 'patch' }, parameters: { content: 'diff' } },
      { approach: 'd', label: 'd', strategy: { kind: 'module', path: path.join(folder, '.kosa8/approaches/d.ts') }, parameters: {} },
    ])
  })

  it('may stand for a script of another place, whose content travels', async () => {
    const { plans } = await plan({ names: ['a'], yaml: 'approaches: {a: {strategy: script, file: tools/x.py, args: [1]}}', files: { 'tools/x.py': 'print(1)' } })
    expect(plans[0]?.parameters).toEqual({ args: [1], content: 'print(1)' })
  })

  it.each<[string, Case, { code: string; message: string; hint?: string }]>([
    ['that is unknown', { names: ['quik'], yaml: 'approaches: {quick: {strategy: command, run: x}}', files: { '.kosa8/approaches/slow.sh': 'x' } },
      { code: 'APPROACH_UNKNOWN', message: 'there is no approach quik', hint: 'did you mean quick? there are quick, slow' }],
    ['that is unknown where there are none', { names: ['a'] },
      { code: 'APPROACH_UNKNOWN', message: 'there is no approach a', hint: 'there are none: add .kosa8/approaches/a.sh or an entry in kosa8.yaml' }],
    ['missing from an empty list', { names: [] }, { code: 'USAGE', message: 'no approach is given', hint: 'name at least one: --approaches a,b,c' }],
    ['given twice', { names: ['a', 'a'], files: { '.kosa8/approaches/a.sh': 'x' } }, { code: 'APPROACH_INVALID', message: 'the approach a is given twice' }],
    ['that is the baseline\'s', { names: ['baseline'] },
      { code: 'APPROACH_INVALID', message: 'an approach cannot be named baseline: that is the trial without a change, which every run has' }],
    ['that no file could have', { names: ['../x'] },
      { code: 'APPROACH_INVALID', message: '"../x" is no name for an approach: use 1 to 64 letters, digits, dashes and underscores' }],
    ['with several files', { names: ['a'], files: { '.kosa8/approaches/a.sh': 'x', '.kosa8/approaches/a.patch': 'y' } },
      { code: 'APPROACH_INVALID', message: 'the approach a has several files: a.patch, a.sh' }],
    ['with a prompt', { names: ['a'], files: { '.kosa8/approaches/a.md': 'Fix it.' } },
      { code: 'APPROACH_INVALID', message: 'the approach a is a prompt (.kosa8/approaches/a.md), and agent strategies are not there yet' }],
    ['with an empty script', { names: ['a'], files: { '.kosa8/approaches/a.sh': '' } }, { code: 'APPROACH_INVALID', message: '.kosa8/approaches/a.sh is empty' }],
    ['with a script beyond a mebibyte', { names: ['a'], files: { '.kosa8/approaches/a.sh': 'x'.repeat(1024 * 1024 + 1) } },
      { code: 'APPROACH_INVALID', message: '.kosa8/approaches/a.sh has 1048577 bytes; at most 1048576 are allowed' }],
    ['with a patch that is no UTF-8', { names: ['a'], files: { '.kosa8/approaches/a.patch': Uint8Array.of(0xff, 0xfe) } },
      { code: 'APPROACH_INVALID', message: '.kosa8/approaches/a.patch is not UTF-8 text' }],
    ['with an unknown strategy', { names: ['a'], yaml: 'approaches: {a: {strategy: skript}}' },
      { code: 'APPROACH_INVALID', message: 'the approach a has the unknown strategy skript', hint: 'did you mean script? strategies are script, patch, command, or the path of a .ts or .js module' }],
    ['with a module that is not there', { names: ['a'], yaml: 'approaches: {a: {strategy: ./x.ts}}' }, { code: 'APPROACH_INVALID', message: './x.ts does not exist' }],
    ['of a built-in strategy without what it needs', { names: ['command'] },
      { code: 'APPROACH_INVALID', message: 'the approach command uses the strategy command, which needs run: a shell command' }],
    ['inherited from every object', { names: ['constructor'], yaml: 'approaches: {a: {strategy: command, run: x}}' },
      { code: 'APPROACH_UNKNOWN', message: 'there is no approach constructor' }],
  ])('%s is refused before anything starts', async (_what, request, expected) => {
    await expect(plan(request)).rejects.toMatchObject(expected)
  })
})

describe('a matrix', () => {
  const files = { '.kosa8/approaches/a.sh': 'x' }

  it('tries an approach with every combination, and labels say which', async () => {
    const { plans } = await plan({ names: ['a'], files, matrix: { depth: [2, 4], mode: ['fast', 'slow'] } })
    expect(plans.map(({ label }) => label)).toEqual(['a@depth=2,mode=fast', 'a@depth=2,mode=slow', 'a@depth=4,mode=fast', 'a@depth=4,mode=slow'])
    expect(plans[1]?.parameters).toEqual({ content: 'x', depth: 2, mode: 'slow' })
  })

  it('gives labels that are different, and safe in paths and refs, whatever the values', async () => {
    const values = ['a/b', 'a b', 'a:b', '..', 'x.lock', 'x.', '~^', '{@', '*', 'ü', 'y'.repeat(500), `${'y'.repeat(500)}z`]
    const { plans } = await plan({ names: ['a'], files, matrix: { v: values } })
    const labels = plans.map(({ label }) => label)
    expect(new Set(labels).size).toBe(values.length)
    for (const label of labels) expect(label).toMatch(/^a@v=(?!.*\.\.)(?!.*\.lock$)(?!.*\.$)[A-Za-z0-9._-]{1,60}$/)
    expect(plans.map(({ parameters }) => parameters['v'])).toEqual(values)
  })

  it('takes values that read alike once', async () => {
    const { plans } = await plan({ names: ['a'], files, matrix: { v: [1, '1', true] } })
    expect(plans.map(({ label }) => label)).toEqual(['a@v=1', 'a@v=true'])
  })

  it('of more trials than are allowed is refused, without making them first', async () => {
    const keys = Array.from({ length: 12 }, (_, index) => [`k${index}`, Array.from({ length: 10 }, (_value, value) => value)])
    await expect(plan({ names: ['a'], files, matrix: Object.fromEntries(keys) as Matrix })).rejects.toMatchObject({
      code: 'USAGE', message: 'approaches (1) × matrix cells (1000000000000) × repeats (1) make 1000000000000 trials; at most 256 are allowed',
    })
    await expect(plan({ names: ['a'], files, matrix: { k: [1, 2, 3] }, repeats: 86 })).rejects.toMatchObject({ code: 'USAGE' })
  })
})
