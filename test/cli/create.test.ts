import { describe, expect, it } from 'vitest'
import { serveHome } from '../daemon-server/serve.js'
import { createDeferred } from '../../src/util/deferred.js'
import { startCli, type CliOptions } from './run-cli.js'

const STEP = 'booting a machine (base, 1024 MiB)'

/** `create web`, held at a step until `go`. */
async function createSlowly(argv: string[], terminals: CliOptions['terminals'] = {}) {
  const { settings, services } = await serveHome()
  const held = createDeferred<void>()
  services.sandboxes.createHold = { step: STEP, until: held.promise }
  const cli = startCli(['create', 'web', ...argv], { settings: { ...settings, isCi: false }, terminals })
  return { cli, go: () => held.resolve() }
}

describe('kosa8 create', () => {
  it('says in a plain line what is going on where standard error is no terminal, and nothing else than the answer on standard output', async () => {
    const { cli, go } = await createSlowly(['--json'])
    await expect.poll(() => cli.stderrSoFar()).toBe(`${STEP}\n`)
    go()
    const { status, stdout, stderr } = await cli.ended
    expect({ status, stderr }).toEqual({ status: 0, stderr: `${STEP}\n` })
    expect(JSON.parse(stdout)).toMatchObject({ name: 'web', state: 'running', step: null })
  })

  it('draws one line with a clock on a terminal, and takes it away in the end', async () => {
    const { cli, go } = await createSlowly([], { stderr: true })
    expect(cli.stderrSoFar()).toBe('')
    await expect.poll(() => cli.stderrSoFar()).toMatch(/^making sandbox web {2}\(0 s\)\n\u001b\[1A\u001b\[Jbooting a machine \(base, 1024 MiB\) {2}\(\d s\)\n$/)
    go()
    const { stdout, stderr } = await cli.ended
    expect(stdout).toBe('web is running (base, 1024 MiB, egress deny)\n')
    expect(stderr.endsWith('\n\u001b[1A\u001b[J')).toBe(true)
  })
})
