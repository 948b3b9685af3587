/**
 * Ctrl-C and its like: the command ends soon with the status of the signal, what is finished is shown, nothing is left.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { RunId } from '../../src/model/ids.js'
import { runDocumentSchema } from '../../src/model/run.js'
import { ADDER_FILES, FIX } from '../helpers/adder.js'
import { Kosa8 } from '../helpers/kosa8.js'

let kosa8: Kosa8
let repository: string
let ofTheSandbox: Record<string, string[]>

beforeAll(async () => {
  kosa8 = await Kosa8.open()
  repository = await kosa8.makeRepository('adder', ADDER_FILES, {
    fix: FIX, endless: `${FIX}echo ready; sleep 3000\n`,
    // So many files that collecting them takes a moment.
    many: 'mkdir many; i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo $i > many/$i; done\n',
  })
  await kosa8.ask(['create', 'source', '--repo', repository])
  await kosa8.ask(['checkpoint', 'source'])
  ofTheSandbox = await kosa8.listLeftovers()
}, 300_000)

afterAll(() => kosa8.close())

const FROM_CHECKPOINT = ['source', '--from', 'source-ckpt-1', '--approaches']

async function expectStopped(
  args: string[], signal: 'SIGINT' | 'SIGTERM' | 'SIGHUP', moment: (run: RunId) => Promise<unknown>,
): Promise<{ status: number; run: RunId }> {
  const { run, fork } = await kosa8.startFork(args, { cwd: repository })
  await moment(run)
  const pressedAt = performance.now()
  fork.process.kill(signal)
  const { status, stdout } = await fork.ended
  expect(performance.now() - pressedAt).toBeLessThan(15_000)
  expect(runDocumentSchema.parse(JSON.parse(stdout))).toMatchObject({ id: run, state: 'interrupted', winner: null })
  expect(await kosa8.leftoversOnceTidy(run)).toEqual(ofTheSandbox)
  return { status, run }
}

describe('a fork that gets', () => {
  it('SIGINT while it prepares ends with 130 and a document, and leaves nothing', async () => {
    const { status } = await expectStopped(['--approaches', 'fix'], 'SIGINT', () =>
      kosa8.machine(({ purpose }) => purpose.kind === 'sandbox' && purpose.name.startsWith('run-')))
    expect(status).toBe(130)
  })

  it('SIGTERM while strategies run ends with 143, keeps what is finished and leaves nothing', async () => {
    const { status, run } = await expectStopped([...FROM_CHECKPOINT, 'endless'], 'SIGTERM', async (id) => {
      await kosa8.event(id, (event) => event.type === 'trial-end' && event.label === 'baseline')
      await kosa8.printed(id, 'endless', 'ready')
    })
    expect(status).toBe(143)
    expect(await kosa8.document(run)).toMatchObject({
      baseline: { tests: { failing: ['adds'] } }, trials: [{ label: 'endless', state: 'cancelled', verdict: 'unscored' }],
    })
  })

  it('SIGHUP while results are collected ends with 129 and leaves nothing', async () => {
    const { status } = await expectStopped([...FROM_CHECKPOINT, 'many'], 'SIGHUP', (id) =>
      kosa8.event(id, (event) => event.type === 'trial-phase' && event.label === 'many' && event.phase === 'collecting'))
    expect(status).toBe(129)
  })

  it('a second signal ends at once; the run is tidied up behind it', async () => {
    const { run, fork } = await kosa8.startFork([...FROM_CHECKPOINT, 'endless'], { cwd: repository })
    await kosa8.printed(run, 'endless', 'ready')
    fork.process.kill('SIGINT')
    await kosa8.until(kosa8.paths.runDirectory(run), () => kosa8.runs.readCancelRequest(run))
    fork.process.kill('SIGINT')
    expect((await fork.ended).status).toBe(130)
    await kosa8.event(run, (event) => event.type === 'run-end')
    expect(await kosa8.leftoversOnceTidy(run)).toEqual(ofTheSandbox)
  })
})

it('never leaves the source paused', async () => {
  const [source] = JSON.parse(await kosa8.ask(['ls', '--json'])) as { name: string; state: string }[]
  expect(source).toMatchObject({ name: 'source', state: 'running' })
  expect(await kosa8.ask(['exec', 'source', '--', 'echo', 'here'])).toBe('here\n')
})
