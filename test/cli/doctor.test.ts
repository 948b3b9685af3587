import { readdir } from 'node:fs/promises'
import { describe, expect, it } from 'vitest'
import { spawnProgram } from '../../src/util/spawn.js'
import { serveHome } from '../daemon-server/serve.js'
import { typeCommand } from './run-cli.js'

interface Found { ok: boolean; checks: { name: string; state: string; message: string; cure: string | null }[] }

describe('kosa8 doctor', () => {
  it('looks at everything the work needs, and every finding that is not ok has a cure', async () => {
    const { settings, home } = await serveHome()
    const before = await readdir(home)
    const { stdout } = await typeCommand(['doctor', '--json'], { settings })
    const { checks } = JSON.parse(stdout) as Found
    expect(checks.map(({ name }) => name)).toEqual(['host', 'node', 'qemu', 'git', 'tar', 'flock', 'redis', 'memory', 'pressure', 'disk', 'reflink',
      'daemon', 'acceleration', 'budget', 'images'])
    for (const { state, cure } of checks) expect(cure === null).toBe(state === 'ok')
    expect(checks.find(({ name }) => name === 'acceleration')).toMatchObject({ state: 'warning', message: 'tcg: there is no /dev/kvm' })
    expect(await readdir(home)).toEqual(before)
  })

  it('is status 3 with the cure when the base image is missing', async () => {
    const { settings, services } = await serveHome()
    services.daemon.images_ = []
    const { status, stdout } = await typeCommand(['doctor'], { settings })
    expect(status).toBe(3)
    expect(stdout).toContain('problem  images        there is no base image yet\n                       build it with: kosa8 image build\n')
  })
})

describe('kosa8 completion', () => {
  it('for bash completes verbs, verbs below them, and flags', async () => {
    const { settings } = await serveHome()
    const { stdout } = await typeCommand(['completion', 'bash'], { settings })
    const ask = async (words: string) => {
      const script = `${stdout}\nCOMP_WORDS=(${words}); COMP_CWORD=$(( \${#COMP_WORDS[@]} - 1 )); _kosa8; echo "\${COMPREPLY[*]}"`
      const bash = spawnProgram('bash', ['-c', script], { stdio: ['ignore', 'pipe', 'inherit'] })
      const chunks: Buffer[] = []
      for await (const chunk of bash.stdout!) chunks.push(chunk as Buffer)
      return Buffer.concat(chunks).toString().trim()
    }
    expect(await ask('kosa8 rew')).toBe('rewind')
    expect(await ask('kosa8 rewind web --t')).toBe('--to')
    expect((await ask('kosa8 checkpoint ""')).split(' ')).toEqual(expect.arrayContaining(['ls', 'rm', '--label']))
  })

  it.each(['zsh', 'fish'])('is there for %s', async (shell) => {
    const { settings } = await serveHome()
    expect((await typeCommand(['completion', shell], { settings })).stdout).toContain('rewind')
  })

  it('for another shell is wrong use', async () => {
    const { settings } = await serveHome()
    expect(await typeCommand(['completion', 'csh'], { settings })).toMatchObject({ status: 2, stderr: 'kosa8: there is no completion for csh\nhint: use bash, zsh or fish\n' })
  })
})
