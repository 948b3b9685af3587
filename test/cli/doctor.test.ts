import { readdir } from 'node:fs/promises'
import { describe, expect, it } from 'vitest'
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
