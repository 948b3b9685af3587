import { describe, expect, it } from 'vitest'
import { tellAge } from '../../src/cli/relative-time.js'
import { Kosa8Client } from '../../src/sdk/client.js'
import { MemoryCheckpointStore } from '../../src/sdk/checkpoint-store.js'
import { serveHome } from '../daemon-server/serve.js'
import { startCli, typeCommand, type CliOptions } from './run-cli.js'

async function serveWeb() {
  const { settings, home, services } = await serveHome()
  const { sandboxes } = services
  const client = new Kosa8Client({ home })
  await client.createSandbox({ name: 'web' })
  const ago = (minutes: number): void => { sandboxes.now = () => new Date(Date.now() - minutes * 60_000 - 500).toISOString() }
  const type = (argv: string[], options?: Partial<CliOptions>) => typeCommand(argv, { settings, ...options })
  const take = async (minutes: number, label: string) => { ago(minutes); await type(['checkpoint', 'web', '--label', label]) }
  return { type, take, ago, client, sandboxes, settings, home }
}

describe('kosa8 checkpoint', () => {
  it('prints what the guide prints', async () => {
    const { type } = await serveWeb()
    const { stdout } = await type(['checkpoint', 'web', '--label', 'before migration'])
    expect(stdout).toMatch(/^checkpoint web-ckpt-1 \(before migration\) saved in \d+ms\n {2}rewind with `kosa8 rewind web`\n$/)
    expect((await type(['checkpoint', 'web'])).stdout).toMatch(/^checkpoint web-ckpt-2 saved in \d+ms\n/)
    expect(JSON.parse((await type(['checkpoint', 'web', '--json'])).stdout)).toMatchObject({ checkpoint: { id: 'web-ckpt-3', label: null, by: 'you' }, evicted: [] })
    expect(await type(['checkpoint'])).toMatchObject({ status: 2 })
  })

  it('lists them in columns, with a star where rewind goes', async () => {
    const { type, take } = await serveWeb()
    await take(12, 'before migration')
    await take(4, 'after the schema change')
    await take(0, 'before the risky bit')
    expect((await type(['checkpoint', 'ls', 'web'])).stdout).toBe([
      'CHECKPOINT     WHEN       TAKEN   WHY',
      ' web-ckpt-1    12m ago    you     before migration',
      ' web-ckpt-2    4m ago     you     after the schema change',
      '*web-ckpt-3    just now   you     before the risky bit',
      '',
      '* is where `kosa8 rewind web` goes', '',
    ].join('\n'))
    expect(JSON.parse((await type(['checkpoint', 'ls', 'web', '--json'])).stdout)).toMatchObject([{ label: 'before migration' }, {}, {}])
  })

  it('says when an eleventh makes the oldest go', async () => {
    const { type, take } = await serveWeb()
    for (let n = 0; n < 10; n += 1) await take(0, 'x')
    expect((await type(['checkpoint', 'web'])).stdout).toContain('\n  dropped web-ckpt-1: a sandbox keeps 10\n')
  })

  it('removes one, and names those its list does not have', async () => {
    const { type, take, home } = await serveWeb()
    expect((await type(['checkpoint', 'ls', 'web'])).stdout).toBe('no checkpoints yet\n')
    await take(0, 'One')
    await new Kosa8Client({ home, checkpointStore: new MemoryCheckpointStore() }).checkpoint('web', { label: 'private' })
    expect((await type(['checkpoint', 'rm', 'web', 'one'])).stdout).toBe('removed web-ckpt-1\n')
    const { stdout, stderr } = await type(['checkpoint', 'ls', 'web'])
    expect(stdout).toBe('no checkpoints yet\n')
    expect(stderr).toBe('not in this list: web-ckpt-2 (private); go there with `kosa8 rewind web --to web-ckpt-2`\n')
  })

  it('shares its list with the SDK', async () => {
    const { type, client } = await serveWeb()
    await client.checkpoint('web', { label: 'by the program' })
    expect((await type(['checkpoint', 'ls', 'web'])).stdout).toContain('*web-ckpt-1   just now   you     by the program')
    await type(['checkpoint', 'web', '--label', 'by hand'])
    expect((await client.listCheckpoints('web')).map(({ label }) => label)).toEqual(['by the program', 'by hand'])
  })

  it('shows control characters of a label', async () => {
    const { type, client } = await serveWeb()
    await client.checkpoint('web', { label: 'a\u001b[2Jb', by: 'x\ny' })
    expect((await type(['checkpoint', 'ls', 'web'])).stdout).toContain('x␊y     a␛[2Jb\n')
  })
})

describe('kosa8 rewind', () => {
  it('asks, and prints what the guide prints', async () => {
    const { type, take } = await serveWeb()
    await take(2, 'before migration')
    const { status, stdout } = await type(['rewind', 'web'], { stdin: 'y\n', terminals: { stdin: true } })
    expect({ status, stdout }).toEqual({
      status: 0,
      stdout: 'Rewind web to web-ckpt-1 — before migration?\nEverything since 2m ago will be lost. [y/N] '
        + 'web is back at web-ckpt-1 (90ms)\n  processes resumed from 2m ago\n',
    })
  })

  it('goes to a label and says how many later ones it dropped', async () => {
    const { type, take } = await serveWeb()
    for (const label of ['before migration', 'b', 'c']) await take(12, label)
    expect(await type(['rewind', 'web', '--to', 'BEFORE migration', '-y'])).toEqual({
      status: 0, stderr: '', stdout: 'web is back at web-ckpt-1 (90ms)\n  dropped 2 later checkpoint(s)\n',
    })
  })

  it('keeps later ones that are in the list of another client, and names them', async () => {
    const { type, take, ago, home } = await serveWeb()
    await take(12, 'before migration')
    ago(3)
    await new Kosa8Client({ home, checkpointStore: new MemoryCheckpointStore() }).checkpoint('web', { label: 'private' })
    await take(1, 'after')
    expect(await type(['rewind', 'web', '--to', 'before migration', '-y'])).toEqual({
      status: 0, stderr: 'later ones that are not in this list were kept: web-ckpt-2\n',
      stdout: 'web is back at web-ckpt-1 (90ms)\n  dropped 1 later checkpoint(s)\n',
    })
    expect(await type(['rewind', 'web', '--to', 'web-ckpt-2', '-y'])).toMatchObject({ status: 0, stderr: '' })
  })

  it.each(['n\n', '\n', ''])('changes nothing when the answer is %j', async (stdin) => {
    const { type, take, sandboxes } = await serveWeb()
    await take(2, 'a')
    await take(1, 'b')
    sandboxes.restore = () => Promise.reject(new Error('it was restored'))
    expect(await type(['rewind', 'web', '--to', 'a'], { stdin })).toMatchObject({ status: 1, stderr: 'nothing was changed\n' })
    expect(sandboxes.all.get('web')?.snapshots).toHaveLength(2)
  })

  it('prints JSON alone, and its question beside it', async () => {
    const { type, take } = await serveWeb()
    await take(2, 'a')
    const asked = await type(['rewind', 'web', '--json'], { stdin: 'yes\n' })
    expect(JSON.parse(asked.stdout)).toMatchObject({ checkpoint: { id: 'web-ckpt-1' }, restore_ms: 90, dropped: [] })
    expect(asked.stderr).toContain('Rewind web to web-ckpt-1 — a?')
    expect((await type(['rewind', 'web', '--json', '-y'])).stderr).toBe('')
  })

  it('to what is not there is wrong use', async () => {
    const { type } = await serveWeb()
    expect(await type(['rewind', 'web', '-y'])).toEqual({ status: 2, stdout: '', stderr: 'kosa8: sandbox web has no checkpoint\nhint: take one with: kosa8 checkpoint web\n' })
  })
})

describe('kosa8 shell', () => {
  it('joins terminal and command, keys, size and status, and leaves the terminal as it was', async () => {
    const { settings, sandboxes } = await serveWeb()
    const exec = sandboxes.exec.bind(sandboxes)
    sandboxes.exec = (name, request) => exec(name, { ...request, argv: request.argv[2]?.includes('bash') === true ? ['cat'] : request.argv })
    const cli = startCli(['shell', 'web'], { settings, stdin: 'keys\u0003', terminals: { stdin: true, stdout: true }, rows: 30 })
    expect(await cli.ended).toEqual({ status: 0, stdout: 'keys\u0003', stderr: '' })
    expect(sandboxes.processes[0]?.request).toMatchObject({ pty: { rows: 30, columns: 100 }, stdin: true })
    expect(cli.rawModes).toEqual([true, false])
  })

  it('passes a change of the window on', async () => {
    const { settings, sandboxes } = await serveWeb()
    const cli = startCli(['exec', '-it', 'web', '--', 'wait'], { settings, terminals: { stdin: true, stdout: true } })
    await expect.poll(() => { cli.resize(50); return sandboxes.processes[0]?.sizes.at(-1) }).toEqual({ rows: 50, columns: 100 })
    await sandboxes.processes[0]?.signal(15)
    expect((await cli.ended).status).toBe(143)
  })

  it('that breaks off in a full-screen program gives the terminal back: its screen, its cursor, its keys', async () => {
    const { settings } = await serveWeb()
    const cli = startCli(['exec', '-it', 'web', '--', 'daemon'], { settings, terminals: { stdin: true, stdout: true } })
    const other = startCli(['exec', '-it', 'web', '--', 'wait'], { settings, terminals: { stdin: true, stdout: true } })
    await expect.poll(() => { other.press('SIGTERM'); return other.rawModes }).toEqual([true, false])
    const { status, stdout } = await other.ended
    expect(status).not.toBe(0)
    expect(stdout).toMatch(/^\x1b\[\?1047l\x1b\[\?25h.*\r\n$/)
    expect((await cli.ended).stdout).toBe('started')
  })

  it('without a terminal is wrong use', async () => {
    const { type } = await serveWeb()
    expect(await type(['shell', 'web'])).toMatchObject({ status: 2, stderr: 'kosa8: a shell needs a terminal\nhint: run a command instead: kosa8 exec web -- CMD\n' })
  })
})

describe('kosa8 exec', () => {
  it('knows the short flags, and reads a terminal only with -i', async () => {
    const { type, sandboxes } = await serveWeb()
    await type(['exec', '-w', '/srv', '-u', 'www', '-e', 'A=1', '-e', 'B=2', 'web', '--', 'print', 'x'], { terminals: { stdin: true } })
    expect(sandboxes.processes[0]?.request).toEqual({ argv: ['print', 'x'], cwd: '/srv', user: 'www', env: { A: '1', B: '2' }, stdin: false })
    expect((await type(['exec', '-i', 'web', '--', 'cat'], { terminals: { stdin: true }, stdin: 'typed' })).stdout).toBe('typed')
    expect(await type(['exec', '--json', '-t', 'web', '--', 'cat'])).toMatchObject({ status: 2 })
  })
})

describe('an age', () => {
  it('is told in the largest unit that fits', () => {
    const at = Date.parse('2026-01-10T12:00:00Z')
    const ages = ['12:00:00', '11:59:01', '11:59:00', '11:48:00', '09:30:00'].map((time) => tellAge(`2026-01-10T${time}Z`, at))
    expect([...ages, tellAge('2026-01-05T11:00:00Z', at)]).toEqual(['just now', 'just now', '1m ago', '12m ago', '2h ago', '5d ago'])
  })
})
