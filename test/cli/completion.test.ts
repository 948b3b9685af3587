import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { Kosa8Client } from '../../src/sdk/client.js'
import { runProgram } from '../../src/util/spawn.js'
import { serveHome, settingsOf, temporaryFolder } from '../daemon-server/serve.js'
import { RUN_ID } from '../daemon-server/memory-services.js'
import { runDocument } from './documents.js'
import { typeCommand } from './run-cli.js'

/** Two sandboxes, one with checkpoints, and a run. */
async function serveNames() {
  const { settings, home, services } = await serveHome()
  const client = new Kosa8Client({ home })
  for (const name of ['web', 'db']) await client.createSandbox({ name })
  await client.checkpoint('web', { label: 'before migration' })
  await client.checkpoint('web')
  services.runs.requests.push({ repository: '/repo', sandbox: null, approaches: [{ label: 'a' }, { label: 'b' }] } as never)
  services.runs.finish(runDocument())
  const cwd = await temporaryFolder()
  await mkdir(path.join(cwd, '.git'))
  await mkdir(path.join(cwd, '.kosa8', 'approaches'), { recursive: true })
  await writeFile(path.join(cwd, '.kosa8', 'approaches', 'rewrite.sh'), 'true')
  await writeFile(path.join(cwd, 'kosa8.yaml'), 'approaches: { quick-fix: { strategy: command, run: "true" }, tune: { strategy: command, run: "true" } }\n')
  const complete = async (line: string) => {
    const { status, stdout, stderr } = await typeCommand(['complete', '--', ...line.split(' ')], { settings, cwd })
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
    return stdout.split('\n').slice(0, -1)
  }
  const words = async (line: string) => (await complete(line)).map((each) => each.split('\t')[0])
  return { complete, words, client, home }
}

describe('kosa8 complete', () => {
  it('offers verbs and those below them, with what they do, and flags', async () => {
    const { complete, words } = await serveNames()
    expect(await complete('rew')).toEqual(['rewind\tPut a sandbox back to a checkpoint, under the same name: memory, processes and files. Its state now is lost.'])
    expect(await words('rewind web --t')).toEqual(['--to'])
    expect(await words('checkpoint ')).toEqual(['ls', 'rm', 'web', 'db'])
    expect(await words('complet')).toEqual(['completion'])
    expect(await words('rewind web --h')).toEqual(['--help'])
  })

  it.each([
    ['exec ', ['db', 'web']],
    ['shell w', ['web']],
    ['rm web ', ['db']],
    ['cp w', ['web:']],
    ['cp ', []],
    ['rewind web --to ', ['web-ckpt-1', 'web-ckpt-2']],
    ['rewind -y web --to web-ckpt-2', ['web-ckpt-2']],
    ['checkpoint rm web ', ['web-ckpt-1', 'web-ckpt-2']],
    ['fork web --from ', ['web-ckpt-1', 'web-ckpt-2']],
    ['rewind nothing --to ', []],
    ['runs show ', ['latest', RUN_ID]],
    ['apply latest ', ['a']],
    [`diff ${RUN_ID} x a`, ['a']],
    ['fork --approaches ', ['quick-fix', 'rewrite', 'tune']],
    ['fork --approaches tune,re', ['tune,rewrite']],
    ['create x --image ', ['base']],
    ['fork --keep ', ['all', 'none', 'winner']],
    ['report latest --format j', ['json', 'junit']],
    ['egress web ', ['deny']],
    ['completion ', ['bash', 'fish', 'zsh']],
    ['fork --test ', []],
    ['exec web ls --t', []],
    ['create ', []],
    ['nonsense ', []],
  ])('after %j offers %j', async (line, expected) => {
    const { words } = await serveNames()
    expect((await words(line)).sort()).toEqual(expected)
  })

  it('says what a name is of', async () => {
    const { complete } = await serveNames()
    expect(await complete('exec w')).toEqual(['web\trunning, base'])
    expect(await complete('rewind web --to web-ckpt-1')).toEqual(['web-ckpt-1\tbefore migration'])
  })

  it('offers no name, at once and without an error, where no daemon runs, and starts none', async () => {
    const settings = settingsOf(await temporaryFolder())
    expect(await typeCommand(['complete', '--', 'exec', ''], { settings })).toEqual({ status: 0, stdout: '', stderr: '' })
    expect((await typeCommand(['complete', '--', 'rewin'], { settings })).stdout).toContain('rewind')
  })
})

describe('kosa8 completion', () => {
  /** Runs the script in its shell, where `kosa8` answers as it does here, and only to exactly these words. */
  async function askShell(program: string, words: string[], lines: (script: string) => string): Promise<string> {
    const { complete, home } = await serveNames()
    const script = (await typeCommand(['completion', program], { settings: settingsOf(home) })).stdout
    const folder = await temporaryFolder()
    const expected = ['complete', '--', ...words].map((word) => `[${word}]`).join('')
    await writeFile(path.join(folder, 'answer'), (await complete(words.join(' '))).map((line) => `${line}\n`).join(''))
    await writeFile(path.join(folder, 'kosa8'), `#!/bin/sh\n[ "$(printf '[%s]' "$@")" = '${expected}' ] && cat ${folder}/answer\n`, { mode: 0o755 })
    const { stdout } = await runProgram(program, ['-c', lines(script)], { env: { ...process.env, PATH: `${folder}:${process.env['PATH']}` } })
    return stdout.toString()
  }

  it.each([
    [['exec', ''], '[web][db]'],
    [['rewind', 'web', '--to', 'web-ckpt-1'], '[web-ckpt-1]'],
    [['create', ''], ''],
  ])('completes %j in bash as %j', async (words, expected) => {
    expect(await askShell('bash', words, (script) => `${script}
COMP_WORDS=(kosa8 ${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length}; _kosa8
for each in "\${COMPREPLY[@]}"; do printf '[%s]' "$each"; done`)).toBe(expected)
  })

  it('completes in fish, where that is installed', async ({ skip }) => {
    if ((await runProgram('sh', ['-c', 'command -v fish'])).code !== 0) skip('there is no fish here')
    const answer = await askShell('fish', ['rewind', 'web', '--to', ''], (script) => `${script}\ncomplete -C 'kosa8 rewind web --to '`)
    expect(answer).toBe('web-ckpt-1\tbefore migration\nweb-ckpt-2\n')
  })

  it('has a script for zsh, also as JSON', async () => {
    const { stdout } = await typeCommand(['completion', 'zsh', '--json'], { settings: settingsOf('/nowhere') })
    expect(JSON.parse(stdout)).toMatchObject({ shell: 'zsh', script: expect.stringMatching(/^#compdef kosa8\n/) as string })
  })

  it('for another shell is wrong use', async () => {
    const settings = settingsOf('/nowhere')
    expect(await typeCommand(['completion', 'csh'], { settings })).toMatchObject({ status: 2, stderr: 'kosa8: there is no completion for csh\nhint: use bash, zsh or fish\n' })
  })
})
