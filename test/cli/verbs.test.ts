import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { Kosa8Error } from '../../src/errors/kosa8-error.js'
import { MEMORY_MIB_MIN } from '../../src/protocol/sandboxes.js'
import { RUN_ID } from '../daemon-server/memory-services.js'
import { serveHome, settingsOf, temporaryFolder, type ServedHome } from '../daemon-server/serve.js'
import { runDocument } from './documents.js'
import { startCli, typeCommand, type CliOptions } from './run-cli.js'

async function serveRun(hasEnded = true): Promise<ServedHome & { type: (line: string, options?: Partial<CliOptions>) => ReturnType<typeof typeCommand> }> {
  const served = await serveHome()
  served.services.runs.requests.push({ repository: '/repo', sandbox: null, approaches: [{ label: 'a' }, { label: 'b' }] } as never)
  if (hasEnded) served.services.runs.finish(runDocument())
  return { ...served, type: (line, options) => typeCommand(line.split(' '), { settings: served.settings, ...options }) }
}

describe('kosa8', () => {
  const VERBS = ['fork', 'runs ls', 'runs show', 'runs rm', 'report', 'diff', 'apply', 'create', 'ls', 'exec', 'rm', 'checkpoint', 'checkpoint ls',
    'checkpoint rm', 'rewind', 'shell', 'cp', 'doctor', 'completion', 'image build', 'image import', 'image ls', 'image rm', 'daemon start', 'daemon stop', 'daemon status']
  it.each(VERBS)('%s has help with an example and --json', async (verb) => {
    const { status, stdout, stderr } = await typeCommand([...verb.split(' '), '--help'], { settings: settingsOf(await temporaryFolder()) })
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
    expect(stdout).toMatch(/\nExample:\n {2}\$ kosa8 /)
    expect(stdout).toContain('--json')
  })

  it('without a verb, or with one it does not know, is wrong use', async () => {
    const settings = settingsOf(await temporaryFolder())
    expect(await typeCommand([], { settings })).toMatchObject({ status: 2, stdout: '' })
    expect(await typeCommand(['frok'], { settings })).toEqual({ status: 2, stdout: '', stderr: 'kosa8: unknown command \'frok\'\nhint: Did you mean fork?\n' })
    expect((await typeCommand(['help', 'frok'], { settings })).stderr).toBe('kosa8: unknown command \'frok\'\nhint: Did you mean fork?\n')
    expect(await typeCommand(['frok', '--help'], { settings })).toMatchObject({ status: 2, stdout: '' })
    expect((await typeCommand(['help', 'checkpoint', 'ls'], { settings })).stdout).toContain('Usage: kosa8 checkpoint ls')
    expect((await typeCommand(['image'], { settings })).stderr).toContain('hint: see `kosa8 image --help`')
    expect(await typeCommand(['rm'], { settings })).toMatchObject({ status: 2, stderr: 'kosa8: missing required argument \'name\'\nhint: see `kosa8 rm --help`\n' })
    expect((await typeCommand(['create', 'x', '--mem', '1M'], { settings })).stderr).toContain(`use at least ${MEMORY_MIB_MIN}M`)
  })

  it('says its version', async () => {
    expect((await typeCommand(['--version'], { settings: settingsOf('/nowhere') })).stdout).toMatch(/^\d+\.\d+\.\d+\n$/)
  })
})

describe('kosa8 runs', () => {
  it('lists runs, also as JSON', async () => {
    const { type } = await serveRun()
    expect((await type('runs')).stdout).toMatch(new RegExp(`${RUN_ID} .*completed .*a, b`))
    expect(JSON.parse((await type('runs ls --json')).stdout)).toMatchObject([{ id: RUN_ID, winner: 'a' }])
  })

  it('shows how a run ended, by id or as the latest', async () => {
    const { type } = await serveRun()
    expect((await type(`runs show ${RUN_ID}`)).stdout).toContain(`run ${RUN_ID}: completed`)
    expect(JSON.parse((await type('runs show latest --json')).stdout)).toEqual(runDocument())
    expect(await type('runs show r20260102-030405-ffffffff')).toMatchObject({ status: 2, stderr: expect.stringContaining('there is no run') as string })
    expect(await type('runs show nonsense')).toMatchObject({
      status: 2, stderr: 'kosa8: there is no run "nonsense"\nhint: list the runs with: kosa8 runs; the newest one is called latest\n',
    })
  })

  it('shows where a run is that goes on', async () => {
    const { type } = await serveRun(false)
    expect((await type('runs show latest')).stdout).toMatch(/: running\na {2}#1 {2}strategy {2}writing\n/)
  })

  it('follows a run with the output of its trials made visible, and leaves it alone when it is left', async () => {
    const { settings, services } = await serveRun(false)
    const cli = startCli(['runs', 'show', 'latest', '--follow'], { settings })
    services.runs.push({ type: 'trial-output', label: 'a', repeat: 2, stream: 'stdout', text: 'one\n\u001b[2Jtwo\n' })
    await expect.poll(() => cli.stderrSoFar()).toBe('a #2 | one\na #2 | ␛[2Jtwo\n')
    cli.press('SIGINT')
    services.runs.finish(runDocument())
    expect((await cli.ended).status).toBe(0)
    expect(services.runs.cancellations).toEqual([])
  })

  it('prints the log of one trial', async () => {
    const { type, services, home } = await serveRun()
    services.runs.folder = home
    await mkdir(path.join(home, 'trials', 'a', '1'), { recursive: true })
    await writeFile(path.join(home, 'trials', 'a', '1', 'log'), 'line\n\u001b[2J')
    expect((await type('runs show latest --log a')).stdout).toBe('line\n\u001b[2J')
    expect((await type('runs show latest --log a', { terminals: { stdout: true } })).stdout).toBe('line\n␛[2J')
    expect(await type('runs show latest --log b/7')).toMatchObject({ status: 2, stderr: 'kosa8: the run\'s folder has no file trials/b/7/log\n' })
  })

  it('removes a run', async () => {
    const { type, services } = await serveRun()
    expect((await type('runs rm latest')).stdout).toBe(`removed ${RUN_ID}\n`)
    expect(services.runs.removed).toEqual([RUN_ID])
  })
})

describe('results of a run', () => {
  it.each(['text', 'md', 'html', 'json', 'junit', 'ctrf'])('are reported as %s', async (format) => {
    const { type, services, home } = await serveRun()
    services.runs.folder = home
    await mkdir(path.join(home, 'trials', 'a', '1'), { recursive: true })
    await writeFile(path.join(home, 'trials', 'a', '1', 'patch'), 'diff --git a/x b/x\n')
    const { status, stdout } = await type(`report latest --format ${format}`)
    expect(status).toBe(0)
    expect(stdout).toMatch({ text: /^run r/, md: /^#/, html: /^<!doctype html>/i, json: /^\{/, junit: /^<\?xml/, ctrf: /^\{/ }[format] as RegExp)
  })

  it('are not reported before there are any, nor in a form nobody knows', async () => {
    const { type } = await serveRun(false)
    expect(await type('report latest')).toMatchObject({ status: 2, stderr: expect.stringMatching(/has no results yet: it is running\nhint: follow it with/) as string })
    expect((await type('report latest --format pdf')).stderr).toContain('Allowed choices are text, md, html, json, junit, ctrf.')
  })

  it('are compared by patch and brought into a branch', async () => {
    const { type, services } = await serveRun()
    expect((await type('diff latest a')).stdout).toBe('diff a base\n')
    expect(JSON.parse((await type('diff latest a b/2 --json')).stdout)).toEqual({ run: RUN_ID, a: 'a', b: 'b/2', patch: 'diff a b/2\n' })
    expect((await type('apply latest a --branch fix')).stdout).toBe('fix is at cccccccccccc: 1 changed file\n')
    expect(services.runs.applied).toEqual([{ approach: 'a', branch: 'fix' }])
  })
})

describe('sandboxes', () => {
  it('are created, listed and removed', async () => {
    const { type } = await serveRun()
    expect((await type('create db --mem 512M')).stdout).toBe('db is running (base, 512 MiB, egress deny)\n')
    expect((await type('create db')).stderr).toBe('kosa8: there is a sandbox db\nhint: take another name\n')
    expect((await type('ls')).stdout).toMatch(/db +running +base +512 MiB +40 MiB +1 +8 GiB +4096 +deny/)
    expect((await type('rm db')).stdout).toBe('removed db\n')
    expect((await type('ls --json')).stdout).toBe('[]\n')
  })

  it('are removed several at once, and one that cannot be removed does not keep the others', async () => {
    const { type } = await serveRun()
    for (const name of ['a', 'b', 'c']) await type(`create ${name}`)
    expect(await type('rm a nosuch b Not/A/Name a')).toEqual({
      status: 2, stdout: 'removed a\nremoved b\n',
      stderr: 'kosa8: removing nosuch failed: there is no sandbox nosuch\nhint: see `kosa8 ls`\n'
        + 'kosa8: removing Not/A/Name failed: "Not/A/Name": use 1 to 40 lower-case letters, digits and dashes\n',
    })
    expect((await type('ls')).stdout).toMatch(/^name .*\nc .*\n$/)
    await type('create d')
    expect(await type('rm c d')).toEqual({ status: 0, stdout: 'removed c\nremoved d\n', stderr: '' })
  })

  it('are removed with one document: as ever for one name, and for several with what failed', async () => {
    const { type, services } = await serveRun()
    for (const name of ['a', 'b', 'c']) await type(`create ${name}`)
    expect(JSON.parse((await type('rm --json c')).stdout)).toEqual({ ok: true, name: 'c' })
    services.sandboxes.deleteFailures.set('b', new Kosa8Error('GUEST_UNREACHABLE', 'it hangs', { hint: 'wait' }))
    const { status, stdout, stderr } = await type('rm --json a nosuch b')
    expect({ status, stderr }).toEqual({ status: 3, stderr: '' })
    expect(JSON.parse(stdout)).toEqual({
      ok: false, removed: ['a'],
      failed: [
        { name: 'nosuch', error: { code: 'SANDBOX_UNKNOWN', message: 'there is no sandbox nosuch', hint: 'see `kosa8 ls`' } },
        { name: 'b', error: { code: 'GUEST_UNREACHABLE', message: 'it hangs', hint: 'wait' } },
      ],
    })
  })

  it('show what they may reach and what was blocked, and are told otherwise', async () => {
    const { type, services } = await serveRun()
    await type('create web --egress *.Example.org,registry.example:8443')
    expect((await type('egress web')).stdout).toBe('web: egress *.example.org,registry.example:8443\nnothing was blocked\n')
    const description = services.sandboxes.all.get('web')?.description
    const blocked = [{ target: 'other.example:443', count: 3, lastAt: new Date().toISOString(), reason: 'it is not on the list' }]
    if (description !== undefined) description.blocked = blocked
    expect((await type('egress web')).stdout).toMatch(/blocked +times +last +why *\nother\.example:443 +3 +just now +it is not on the list/)
    expect((await type('ls')).stdout).toMatch(/egress +blocked +repository *\nweb .* \*\.example\.org,registry\.exampl… +3 /)
    expect(JSON.parse((await type('egress web deny --json')).stdout)).toEqual({ name: 'web', egress: 'deny', blocked })
    expect(await type('egress web a/b')).toMatchObject({ status: 2, stderr: expect.stringContaining('"a/b" is no host') as string })
  })

  it('show in readable lines what a guest tried with names of any length, and that there may have been more', async () => {
    const { type, services } = await serveRun()
    await type('create web --egress a.example')
    const lastAt = new Date().toISOString()
    const blocked = Array.from({ length: 100 }, (_, i) => ({ target: `${'x'.repeat(200)}.evil${i}.example:443`, count: 2, lastAt, reason: 'it is not on the list' }))
    const description = services.sandboxes.all.get('web')?.description
    if (description !== undefined) description.blocked = blocked
    const { stdout } = await type('egress web')
    expect(stdout).toMatch(/\n…x+\.evil0\.example:443 +2 +just now +it is not on the list\n/)
    expect(stdout).toMatch(/\nthese are the last 100 targets\n$/)
    expect(Math.max(...stdout.split('\n').map((line) => line.length))).toBeLessThan(120)
    expect((await type('ls')).stdout).toMatch(/a\.example +200\+ /)
  })

  it('run commands with their flags, input, output and status', async () => {
    const { type, services } = await serveRun()
    await type('create db')
    expect(await type('exec db -- print out err 7')).toEqual({ status: 7, stdout: 'out', stderr: 'err' })
    expect(await type('exec db --cwd /tmp --env A=b=c -- cat --json', { stdin: 'typed' })).toMatchObject({ status: 0, stdout: 'typed' })
    expect(services.sandboxes.processes[1]?.request).toMatchObject({ argv: ['cat', '--json'], cwd: '/tmp', env: { A: 'b=c' }, stdin: true })
    expect(JSON.parse((await type('exec --json db -- print out err 7')).stdout)).toEqual({ exitCode: 7, signal: null, stdout: 'out', stderr: 'err' })
    expect(await type('exec db -- missing')).toMatchObject({ status: 3, stderr: 'kosa8: missing: no such program\nhint: check the name\n' })
  })

  it('end their command where nobody reads its output any more, as a local one ends', async () => {
    const { type, services } = await serveRun()
    await type('create db')
    expect(await type(`exec db -- flood ${40 * 1024 * 1024}`, { readerGoes: true })).toMatchObject({ status: 141, stderr: '' })
    await expect.poll(() => services.sandboxes.processes[0]?.isEnded).toBe(true)
  })

  it('say where the flags of the command itself go', async () => {
    const { type } = await serveRun()
    expect(await type('exec db ls -la')).toEqual({
      status: 2, stdout: '', stderr: 'kosa8: unknown option \'-la\'\nhint: flags of the command itself come after --, as in: kosa8 exec NAME -- ls -la\n',
    })
    expect((await type('exec db --usr me -- ls')).stderr).toContain('hint: Did you mean --user?')
  })

  it('pass a signal to the command and end as it does', async () => {
    const { settings, services, type } = await serveRun()
    await type('create db')
    const cli = startCli(['exec', 'db', '--', 'wait'], { settings })
    await expect.poll(() => services.sandboxes.processes.length).toBe(1)
    await expect.poll(() => { cli.press('SIGTERM'); return services.sandboxes.processes[0]?.isEnded }).toBe(true)
    expect((await cli.ended).status).toBeGreaterThan(2)
  })
})

describe('kosa8 daemon and image', () => {
  it('say what the daemon does', async () => {
    const { type, services } = await serveRun()
    const { status, stdout } = await type('daemon status')
    expect(status).toBe(0)
    expect(stdout).toContain('accelerator: tcg (there is no /dev/kvm)\nmemory: 1024 MiB of 4096 MiB reserved, 3072 MiB free\n')
    expect(stdout).toContain(`${RUN_ID}/b/1 waits: needs 310 MiB, 120 MiB free`)
    expect(JSON.parse((await type('daemon start --json')).stdout)).toMatchObject({ running: true, pid: process.pid })
    expect(services.daemon.stays).toBe(true)
  })

  it('say that none runs, without starting one', async () => {
    const settings = settingsOf(await temporaryFolder())
    expect(await typeCommand(['daemon', 'status'], { settings })).toEqual({ status: 3, stdout: 'the daemon does not run\n', stderr: '' })
    expect(await typeCommand(['daemon', 'stop'], { settings })).toEqual({ status: 0, stdout: 'the daemon was not running\n', stderr: '' })
  })

  it('list and remove images', async () => {
    const { type } = await serveRun()
    expect((await type('image ls')).stdout).toMatch(/base +0123456789abcdef +\d+d ago +300 MiB +recipe +sandbox db/)
    expect((await type('image rm base --old')).stdout).toBe('removed 1 older of base: fedcba9876543210 (300 MiB)\nkept 0011223344556677: used by sandbox db\n')
    expect((await type('image rm base')).stdout).toBe('removed base\n')
    expect(await type('image rm base')).toMatchObject({ status: 2, stderr: 'kosa8: there is no image base\n' })
  })
})

describe('a home that cannot be used', () => {
  it('is named with the reason and what to do', async () => {
    const file = path.join(await temporaryFolder(), 'file')
    await writeFile(file, '')
    expect(await typeCommand(['ls'], { settings: settingsOf(file) })).toEqual({
      status: 2, stdout: '',
      stderr: `kosa8: the state folder ${file} cannot be used: it is a file\nhint: make it writable, or name another one with KOSA8_HOME\n`,
    })
  })
})

describe('a command line that is not understood', () => {
  it('leads to the help of the verb it is about', async () => {
    const { type } = await serveRun()
    expect((await type('runs show')).stderr).toBe('kosa8: missing required argument \'run\'\nhint: see `kosa8 runs show --help`\n')
    expect((await type('fork --approaches a --repeats 0')).stderr).toContain('hint: see `kosa8 fork --help`')
  })
})
