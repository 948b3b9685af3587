/**
 * Processes of ours, killed in the middle of a run: what is finished stays, the run goes on, nothing is left behind.
 */
import { mkdir, readdir, readFile, truncate, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { RunId } from '../../src/model/ids.js'
import { runDocumentSchema, type RunDocument, type TrialRecord } from '../../src/model/run.js'
import type { ProcessIdentity } from '../../src/util/process-identity.js'
import { ADDER_FILES, FIX } from '../helpers/adder.js'
import { killHard, Kosa8 } from '../helpers/kosa8.js'

let kosa8: Kosa8
let repository: string
/** What the sandbox that is forked has of its own. */
let ofTheSandbox: Record<string, string[]>

beforeAll(async () => {
  kosa8 = await Kosa8.open()
  repository = await kosa8.makeRepository('adder', ADDER_FILES, { fix: FIX, slow: `echo ready; sleep 6\n${FIX}` })
  await kosa8.ask(['create', 'source', '--repo', repository])
  await kosa8.ask(['checkpoint', 'source'])
  ofTheSandbox = await kosa8.listLeftovers()
}, 300_000)

afterAll(() => kosa8.close())

/** Forks, kills `victim` once the baseline is stored and an approach is at work, and waits for the end. */
async function forkAndKill(victim: (run: RunId) => Promise<ProcessIdentity>): Promise<{ document: RunDocument; records: TrialRecord[] }> {
  const { run, fork } = await kosa8.startFork(['source', '--from', 'source-ckpt-1', '--approaches', 'fix,slow'])
  await kosa8.event(run, (event) => event.type === 'trial-end' && event.label === 'baseline')
  const baseline = path.join(kosa8.paths.trialDirectory(run, 'baseline', 1), 'record.json')
  const stored = await readFile(baseline, 'utf8')
  await kosa8.printed(run, 'slow', 'ready')
  await killHard(await victim(run))
  const { status, stdout, stderr } = await fork.ended
  expect(status, stderr).toBe(0)
  expect(await readFile(baseline, 'utf8')).toBe(stored)
  return { document: runDocumentSchema.parse(JSON.parse(stdout)), records: await kosa8.runs.readTrialRecords(run) }
}

function expectComplete({ document, records }: { document: RunDocument; records: TrialRecord[] }): void {
  expect(document).toMatchObject({ state: 'completed', error: null })
  expect(document.trials.map(({ label, verdict }) => `${label} ${verdict}`)).toEqual(['fix better', 'slow better'])
  expect(records.map(({ label }) => label).sort()).toEqual(['baseline', 'fix', 'slow'])
}

describe('a run in whose middle SIGKILL hits', () => {
  it('the machine of a trial tries that trial again, keeps one result and leaves nothing (invariants 5 and 6)', async () => {
    const ended = await forkAndKill((run) =>
      kosa8.machine(({ purpose }) => purpose.kind === 'trial' && purpose.run === run && purpose.trial.includes('slow')))
    expectComplete(ended)
    expect(ended.records.find(({ label }) => label === 'slow')?.attempt).toBe(2)
    expect(await kosa8.leftoversOnceTidy(ended.document.id as RunId)).toEqual(ofTheSandbox)
  })

  it('the daemon goes on under the next one, with the same trials (invariants 5 and 6)', async () => {
    const ended = await forkAndKill(() => kosa8.daemon())
    expectComplete(ended)
    expect(ended.records.map(({ attempt }) => attempt)).toEqual([1, 1, 1])
    expect(await kosa8.leftoversOnceTidy(ended.document.id as RunId)).toEqual(ofTheSandbox)
  })

  it('redis-server goes on when it is back, with the same trials (invariants 5 and 6)', async () => {
    const ended = await forkAndKill(() => kosa8.redis())
    expectComplete(ended)
    expect(ended.records.map(({ attempt }) => attempt)).toEqual([1, 1, 1])
    expect(await kosa8.leftoversOnceTidy(ended.document.id as RunId)).toEqual(ofTheSandbox)
  })

  it('the worker gives its trials to the next one, keeps one result each and leaves nothing (invariants 5 and 6)', async () => {
    const ended = await forkAndKill(() => kosa8.worker())
    expectComplete(ended)
    expect(ended.records.find(({ label }) => label === 'slow')?.attempt).toBe(2)
    expect(await kosa8.leftoversOnceTidy(ended.document.id as RunId)).toEqual(ofTheSandbox)
  })

  it('the daemon while it prepares has ended as interrupted after the restart, and leaves nothing (invariant 6)', async () => {
    const { run, fork } = await kosa8.startFork(['--approaches', 'fix'], { cwd: repository })
    await kosa8.machine(({ purpose }) => purpose.kind === 'sandbox' && purpose.name.startsWith('run-'))
    await killHard(await kosa8.daemon())
    expect((await fork.ended).status).toBe(130)
    expect(await kosa8.document(run)).toMatchObject({ state: 'interrupted', trials: [], winner: null })
    expect(await kosa8.leftoversOnceTidy(run)).toEqual(ofTheSandbox)
  })
})

it('a sandbox survives SIGKILL of the daemon and answers', async () => {
  const boot = await kosa8.ask(['exec', 'source', '--', 'sh', '-c', 'echo kept > /dev/shm/mark; cat /proc/sys/kernel/random/boot_id'])
  const machine = await kosa8.machine(({ purpose }) => purpose.kind === 'sandbox' && purpose.name === 'source')
  await killHard(await kosa8.daemon())
  expect(await kosa8.ask(['exec', 'source', '--', 'cat', '/dev/shm/mark', '/proc/sys/kernel/random/boot_id'])).toBe(`kept\n${boot}`)
  expect(await kosa8.machine(({ purpose }) => purpose.kind === 'sandbox')).toEqual(machine)
})

describe('a copy of a folder in whose middle the daemon is killed says so in one line', () => {
  /** By then its socket is closed, or reset where bytes were on their way. */
  const SAID = { status: 3, stderr: expect.stringMatching(/^kosa8: the (daemon ended while .*|connection to the daemon broke: .*)\n$/) as string }
  const script = (text: string): string[] => ['exec', 'source', '--', 'sh', '-c', text]

  it('to the host, where nothing of it is left', async () => {
    const folder = path.join(kosa8.folder, 'out')
    await mkdir(folder)
    await kosa8.ask(script('mkdir /srv/much && truncate -s 4G /srv/much/zeros'))
    const copy = kosa8.start(['cp', 'source:/srv/much', 'out/much'])
    const [temporary] = await kosa8.until(folder, async () => readdir(folder).then((names) => names.length === 0 ? null : names))
    await kosa8.until(path.join(folder, temporary!), async () => (await readdir(path.join(folder, temporary!))).length === 0 ? null : true)
    await killHard(await kosa8.daemon())
    expect(await copy.ended).toMatchObject(SAID)
    expect(await readdir(folder)).toEqual([])
  })

  it('into the sandbox', async () => {
    await mkdir(path.join(kosa8.folder, 'much'))
    await writeFile(path.join(kosa8.folder, 'much', 'zeros'), '')
    await truncate(path.join(kosa8.folder, 'much', 'zeros'), 4 * 2 ** 30)
    const copy = kosa8.start(['cp', 'much', 'source:/srv/in'])
    await kosa8.ask(script('until [ -s /srv/in/zeros ]; do sleep 0.1; done'))
    await killHard(await kosa8.daemon())
    expect(await copy.ended).toMatchObject(SAID)
  })
})
