import { access, mkdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import type { RunDocument } from '../../src/model/run.js'
import { VERSION } from '../../src/protocol/status.js'
import { RUN_ID } from '../daemon-server/memory-services.js'
import { serveHome, settingsOf, temporaryFolder } from '../daemon-server/serve.js'
import { runDocument, trialResult } from './documents.js'
import { startCli, typeCommand } from './run-cli.js'

/** A folder that looks like a repository, with two scripts as approaches. */
async function createProject(yaml = ''): Promise<string> {
  const folder = await temporaryFolder()
  await mkdir(path.join(folder, '.git'))
  await mkdir(path.join(folder, '.kosa8', 'approaches'), { recursive: true })
  for (const name of ['a', 'b']) await writeFile(path.join(folder, '.kosa8', 'approaches', `${name}.sh`), `echo ${name}\n`)
  await writeFile(path.join(folder, 'kosa8.yaml'), yaml)
  return folder
}

async function prepare(document: RunDocument = runDocument(), yaml = '') {
  const served = await serveHome()
  const cwd = await createProject(yaml)
  const { runs } = served.services
  runs.onStart = () => {
    runs.push({ type: 'run-phase', phase: 'running', message: 'checkpoint taken' })
    runs.push({ type: 'trial-phase', label: 'a', repeat: 1, phase: 'waiting', message: 'needs 310 MiB, 120 MiB free' })
    runs.push({ type: 'trial-end', label: 'a', repeat: 1, state: 'completed', summary: '3 of 3 passed' })
    runs.finish(document)
  }
  return { ...served, runs, cwd }
}

describe('kosa8 fork', () => {
  it('starts the run it was asked for, shows progress, and prints the comparison with its place', async () => {
    const { settings, cwd, runs } = await prepare()
    const { status, stdout, stderr } = await typeCommand(['fork', '--approaches', 'a,b', '--test', 'make check'], { settings, cwd })
    expect(status).toBe(0)
    expect(stdout).toContain(`run ${RUN_ID}: completed`)
    expect(stdout).toMatch(/results: \/runs\/1\n$/)
    expect(stderr).toContain('a #1: waiting: needs 310 MiB, 120 MiB free\n')
    expect(runs.requests).toEqual([{
      repository: cwd, sandbox: null, from: null, setup: null, repeats: 1, parallel: null, timeoutMs: 1_800_000, keep: 'none', includeUncommitted: true,
      approaches: ['a', 'b'].map((name) => ({ approach: name, label: name, strategy: { kind: 'builtin', name: 'script' }, parameters: { content: `echo ${name}\n` } })),
      machine: { image: 'base', memoryMib: 1024, cpus: 1, egress: 'deny' },
      test: { run: 'make check', results: [], timeoutMs: 600_000, files: [] },
    }])
  })

  it('puts flags over kosa8.yaml over defaults', async () => {
    const yaml = 'image: node\nmem: 2G\nsetup: npm ci\ntest: {run: npm test, results: out.xml, timeout: 5m}\nmatrix: {depth: [1], mode: [x]}\nrepeats: 2\ntimeout: 1h\n'
    const { settings, cwd, runs } = await prepare(runDocument(), yaml)
    const flags = ['--mem', '512M', '--cpus', '2', '--disk', '20G', '--pids', '300', '--egress', 'allow', '--matrix', 'depth=2,4', '--parallel', '3', '--keep', 'winner', '--no-uncommitted', '--timeout', '90s']
    expect((await typeCommand(['fork', '--approaches', 'a', ...flags], { settings, cwd })).status).toBe(0)
    expect(runs.requests[0]).toMatchObject({
      machine: { image: 'node', memoryMib: 512, cpus: 2, diskMib: 20 * 1024, processesMax: 300, egress: 'allow' }, setup: 'npm ci', repeats: 2, parallel: 3, keep: 'winner',
      includeUncommitted: false, timeoutMs: 90_000, test: { run: 'npm test', results: ['out.xml'], timeoutMs: 300_000 },
    })
    expect(runs.requests[0]?.approaches.map(({ label }) => label)).toEqual(['a@depth=2,mode=x', 'a@depth=4,mode=x'])
  })

  it('with --json prints the result document alone on standard output', async () => {
    const { settings, cwd } = await prepare()
    const { status, stdout } = await typeCommand(['fork', '--approaches', 'a', '--json'], { settings, cwd })
    expect(status).toBe(0)
    expect(JSON.parse(stdout)).toEqual(runDocument())
  })

  it('forks a sandbox that is there, with its repository', async () => {
    const { settings, cwd, runs, services } = await prepare()
    await services.sandboxes.create({ name: 'db' as never, image: 'base', memoryMib: 512, cpus: 1, egress: 'deny', repository: cwd }, new AbortController().signal)
    expect((await typeCommand(['fork', 'db', '--from', 'before', '--approaches', 'a'], { settings })).status).toBe(0)
    expect(runs.requests[0]).toMatchObject({ sandbox: 'db', from: 'before', machine: null, repository: cwd })
  })

  it('copies report, document and patches where --report says', async () => {
    const { settings, cwd, runs, home } = await prepare()
    runs.folder = path.join(home, 'run')
    await mkdir(path.join(home, 'run', 'trials', 'a', '1'), { recursive: true })
    await writeFile(path.join(home, 'run', 'trials', 'a', '1', 'patch'), 'the patch')
    const target = path.join(home, 'out')
    expect((await typeCommand(['fork', '--approaches', 'a', '--report', target], { settings, cwd })).status).toBe(0)
    expect(await readFile(path.join(target, 'trials', 'a', '1', 'patch'), 'utf8')).toBe('the patch')
    expect(JSON.parse(await readFile(path.join(target, 'run.json'), 'utf8'))).toMatchObject({ id: RUN_ID })
    expect(await readFile(path.join(target, 'report.md'), 'utf8')).toContain('fixed')
  })

  it('on a terminal draws one line per trial and removes it at the end', async () => {
    const { settings, cwd, runs } = await prepare()
    runs.onStart = () => runs.push({ type: 'trial-phase', label: 'a', repeat: 1, phase: 'waiting', message: 'needs 310 MiB\u001b[31m' })
    const cli = startCli(['fork', '--approaches', 'a'], { settings: { ...settings, isCi: false }, cwd, terminals: { stderr: true } })
    await expect.poll(() => cli.stderrSoFar()).toMatch(/ {2}a {2}waiting {4}0 s {2}needs 310 MiB␛\[31m\n/)
    runs.finish(runDocument())
    expect((await cli.ended).stderr).toMatch(/\u001b\[2A\u001b\[J$/)
  })

  it('shows as many trials as the terminal has room for', async () => {
    const { settings, cwd, runs } = await prepare()
    runs.onStart = () => { for (let repeat = 1; repeat <= 40; repeat++) runs.push({ type: 'trial-phase', label: 'a', repeat, phase: 'queued', message: '' }) }
    const cli = startCli(['fork', '--approaches', 'a'], { settings: { ...settings, isCi: false }, cwd, terminals: { stderr: true }, rows: 10 })
    await expect.poll(() => cli.stderrSoFar()).toContain('… and 35 more')
    runs.finish(runDocument())
    await cli.ended
  })
})

describe('the exit status of fork', () => {
  const unscored = trialResult({ state: 'error', verdict: 'unscored', error: { code: 'MACHINE_GONE', message: 'it ended' } })
  const noWinner = { trials: [trialResult({ verdict: 'worse' })], winner: null, ranking: ['a'] }
  it.each<[string, Partial<RunDocument>, string[], number]>([
    ['0 when every trial was scored, though none won', noWinner, [], 0],
    ['1 when a winner was required and there is none', noWinner, ['--require', 'pass'], 1],
    ['0 when a winner was required and there is one', {}, ['--require', 'pass'], 0],
    ['3 when a trial could not be tried', { trials: [unscored, trialResult()] }, [], 3],
    ['3 for that, also when a winner was required', { trials: [unscored], winner: null }, ['--require', 'pass'], 3],
    ['0 for a trial that failed by itself', { trials: [trialResult({ state: 'failed', verdict: 'worse', exitCode: 1 })] }, [], 0],
    ['2 when the set-up command of the user failed', { state: 'failed', error: { code: 'SETUP_COMMAND_FAILED', message: 'npm ci ended with status 1' } }, [], 2],
    ['3 when the run failed for a reason of ours', { state: 'failed', error: { code: 'QUEUE_UNREACHABLE', message: 'no redis' } }, [], 3],
    ['130 when somebody else cancelled the run', { state: 'cancelled' }, [], 130],
  ])('is %s', async (_claim, overrides, flags, expected) => {
    const { settings, cwd } = await prepare(runDocument(overrides))
    const { status, stderr } = await typeCommand(['fork', '--approaches', 'a', ...flags], { settings, cwd })
    expect(status).toBe(expected)
    if (overrides.error !== undefined && overrides.error !== null) expect(stderr).toContain(`kosa8: ${overrides.error.message}\n`)
  })

  it.each([['SIGINT', 130], ['SIGTERM', 143], ['SIGHUP', 129]] as const)('after %s is %i, with every finished result printed', async (signal, expected) => {
    const { settings, cwd, runs } = await prepare()
    runs.onStart = () => runs.push({ type: 'run-phase', phase: 'running', message: 'on' })
    runs.onCancel = () => runs.finish(runDocument({ state: 'interrupted' }))
    const cli = startCli(['fork', '--approaches', 'a', '--json'], { settings, cwd })
    await expect.poll(() => cli.stderrSoFar()).toContain('running: on')
    cli.press(signal)
    const { status, stdout } = await cli.ended
    expect(status).toBe(expected)
    expect(JSON.parse(stdout)).toMatchObject({ state: 'interrupted', trials: [{ label: 'a' }] })
    expect(runs.cancellations).toEqual([{ reason: `the command was ended by ${signal}`, as: 'interrupted' }])
  })

  it('after a second signal is set at once, though the run has not ended', async () => {
    const { settings, cwd, runs } = await prepare()
    runs.onStart = () => runs.push({ type: 'run-phase', phase: 'running', message: 'on' })
    const cli = startCli(['fork', '--approaches', 'a'], { settings, cwd })
    await expect.poll(() => cli.stderrSoFar()).toContain('running: on')
    cli.press('SIGINT')
    cli.press('SIGINT')
    const { status, stderr } = await cli.ended
    expect(status).toBe(130)
    expect(stderr).toContain(`run ${RUN_ID} has not ended yet: see \`kosa8 runs show ${RUN_ID}\``)
  })
})

describe('a fork that cannot be', () => {
  it.each<[string, string[], string, string]>([
    ['an unknown approach', ['--approaches', 'aa'], 'there is no approach aa', 'did you mean a? there are a, b'],
    ['no approach', ['--approaches', ''], 'no approach is given', 'name at least one: --approaches a,b,c'],
    ['an approach twice', ['--approaches', 'a,a'], 'the approach a is given twice', 'use --repeats to try one approach several times'],
    ['a gap in the list', ['--approaches', 'a,,b'], '"" is no name for an approach: use 1 to 64 letters, digits, dashes and underscores', ''],
    ['no --approaches', [], 'required option \'--approaches <names>\' not specified', 'see `kosa8 fork --help`'],
    ['a mistyped flag', ['--approaches', 'a', '--reapeats', '2'], 'unknown option \'--reapeats\'', 'Did you mean --repeats?'],
    ['--from without a sandbox', ['--approaches', 'a', '--from', 'x'], '--from names a checkpoint of a sandbox, and no sandbox is given', 'kosa8 fork SANDBOX --from CHECKPOINT …'],
    ['what is no host', ['--approaches', 'a', '--egress', 'a.example,b/c'], 'option \'--egress <rule>\' argument \'a.example,b/c\' is invalid. "b/c" is no host: use a name, *.name, * or an address, each with or without :port', 'see `kosa8 fork --help`'],
    ['results of no tests', ['--approaches', 'a', '--results', 'x.xml'], '--results is given, and there is no test command', 'give one with --test, or test: in kosa8.yaml'],
    ['too many trials', ['--approaches', 'a', '--repeats', '100', '--matrix', 'k=1,2,3'], 'approaches (1) × matrix cells (3) × repeats (100) make 300 trials; at most 256 are allowed', 'give fewer values, approaches or repeats'],
  ])('because of %s ends with status 2, one line and a hint, and starts nothing', async (_what, flags, message, hint) => {
    const settings = settingsOf(await temporaryFolder())
    const { status, stdout, stderr } = await typeCommand(['fork', ...flags], { settings, cwd: await createProject() })
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' })
    expect(stderr).toBe(`kosa8: ${message}\n${hint === '' ? '' : `hint: ${hint}\n`}`)
    await expect(access(path.join(settings.home, 'daemon.log'))).rejects.toThrow()
  })

  it('because kosa8.yaml is broken, or there is no repository, ends with status 2', async () => {
    const settings = settingsOf(await temporaryFolder())
    const broken = await typeCommand(['fork', '--approaches', 'a'], { settings, cwd: await createProject('imag: node\n') })
    expect(broken).toEqual({ status: 2, stdout: '', stderr: 'kosa8: kosa8.yaml, line 1: unknown key imag\nhint: did you mean image?\n' })
    const nowhere = await typeCommand(['fork', '--approaches', 'a'], { settings, cwd: await temporaryFolder() })
    expect(nowhere.status).toBe(2)
    expect(nowhere.stderr).toMatch(/^kosa8: .* is not in a git repository\nhint: /)
  })

  it('says why as JSON when asked to, also when the flags are wrong', async () => {
    const settings = settingsOf(await temporaryFolder())
    const { status, stdout, stderr } = await typeCommand(['fork', '--json', '--approaches', 'aa'], { settings, cwd: await createProject() })
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' })
    expect(JSON.parse(stderr)).toMatchObject({ error: { code: 'APPROACH_UNKNOWN', message: 'there is no approach aa', details: { nearest: 'a' } } })
    const wrong = await typeCommand(['fork', '--json', '--nonsense'], { settings, cwd: '/' })
    expect(JSON.parse(wrong.stderr)).toMatchObject({ error: { code: 'USAGE' } })
  })

  it('because the sandbox is unknown says so', async () => {
    const { settings, cwd } = await prepare()
    const { status, stderr } = await typeCommand(['fork', 'nodb', '--approaches', 'a'], { settings, cwd })
    expect({ status, stderr }).toEqual({ status: 2, stderr: 'kosa8: there is no sandbox nodb\nhint: see `kosa8 ls`\n' })
  })

  it('because the daemon is of another version and busy ends with status 3', async () => {
    const { settings, cwd, services } = await prepare()
    services.daemon.version = '9.9.9'
    services.daemon.running = { sandboxes: 0, runs: 1 }
    const { status, stderr } = await typeCommand(['fork', '--approaches', 'a'], { settings, cwd })
    expect(status).toBe(3)
    expect(stderr.replace(/ \(build \w+\)/, '')).toContain(`the running daemon is of version 9.9.9, this is ${VERSION}, and it has 0 sandboxes and 1 runs`)
  })
})
