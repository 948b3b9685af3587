/**
 * A machine in the middle of many things, destroyed and put back: all of them go on from the checkpoint's moment.
 */
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Kosa8Client, type SandboxHandle } from '../../src/sdk/index.js'
import { findPackageRoot } from '../../src/util/package-root.js'
import { killHard, Kosa8 } from '../helpers/kosa8.js'

const PROGRAM = path.join(findPackageRoot(), 'test/fixtures/mid-task/task.py')
/** Number and start of every process but the kernel's and those of the asking command. */
const LIST_PROCESSES = `awk -v own=$$ '$(NF-48) != 2 && $1 != 2 && $(NF-46) != own { print $1, $(NF-30) }' /proc/[0-9]*/stat`
/** Nothing is left but the guest agent, and the disk is full. */
const DESTROY = 'fallocate -l 6G /fill; rm -rf /run/task /task.py /usr/lib/python3* /etc; kill -9 -1'
const waitFor = (condition: string): string => `until ${condition}; do sleep 0.1; done`
/** A clock may be read that much later than it is compared, seconds. */
const CLOCK_TOLERANCE_S = 2
/** How many periods of 100 ms three days have, less some slack. */
const GAP_PERIODS_MIN = 2_500_000

let kosa8: Kosa8
let task: SandboxHandle
/** What was true at the checkpoint. */
let saved: { processes: string; number: number; uptimesS: { before: number; after: number } }

const sh = async (sandbox: SandboxHandle, script: string): Promise<string> => {
  const { stdout, stderr, exitCode } = await sandbox.exec(['sh', '-c', script])
  if (exitCode !== 0) throw new Error(`${script} ended with ${exitCode}: ${stderr}`)
  return stdout.trim()
}
const readUptime = async (sandbox: SandboxHandle): Promise<number> => Number(await sh(sandbox, 'cut -d" " -f1 /proc/uptime'))
const destroy = async (sandbox: SandboxHandle): Promise<void> => {
  await sandbox.exec(['sh', '-c', DESTROY])
  await expect(sh(sandbox, 'cat /run/task/number')).rejects.toThrow(/No such file/)
}
const rewind = async (sandbox: SandboxHandle): Promise<number> => {
  const startedAt = performance.now()
  await sandbox.rewind({ to: 'mid-task' })
  return startedAt
}

beforeAll(async () => {
  kosa8 = await Kosa8.open()
  const client = new Kosa8Client({ home: kosa8.paths.home })
  await client.createSandbox({ name: 'task', egress: 'deny', memMb: 256 })
  task = client.sandbox('task')
  await task.writeFile('/task.py', await readFile(PROGRAM))
  // The checkpoint is one of three days ago, for all that the guest knows.
  await sh(task, 'mkdir /run/task; mkfifo /run/task/go /run/task/never; date -s "3 days ago"')
  const start = (...argv: string[]) => task.start(argv, { output: '/run/task/errors' })
  await start('python3', '/task.py', 'serve')
  await sh(task, waitFor('[ -s /run/task/ledger ]'))
  await start('python3', '/task.py', 'hold')
  await sh(task, waitFor('grep -q add /run/task/holder'))
  for (const verb of ['wait', 'count', 'tick']) await start('python3', '/task.py', verb)
  await start('sleep', '3000')
  await start('sh', '-c', 'read line < /run/task/never')
  await sh(task, waitFor('[ -s /run/task/ticks-boot ] && [ -s /run/task/number ] && [ -s /run/task/waiter ]'))
  const processes = await sh(task, LIST_PROCESSES)
  const number = Number(await sh(task, 'cat /run/task/number'))
  const before = await readUptime(task)
  await task.checkpoint({ label: 'mid-task' })
  saved = { processes, number, uptimesS: { before, after: await readUptime(task) } }
}, 300_000)

afterAll(() => kosa8.close())

/** Looks at a machine that has just been put back, then lets it finish what it was at. */
async function expectMidTask(sandbox: SandboxHandle, rewoundAt: number, uptimesS = saved.uptimesS): Promise<void> {
  const nowS = Date.now() / 1000
  const [guestS, uptimeS] = (await sh(sandbox, 'date +%s.%N; cut -d" " -f1 /proc/uptime')).split('\n').map(Number) as [number, number]
  expect(guestS).toBeGreaterThan(nowS - CLOCK_TOLERANCE_S)
  expect(guestS).toBeLessThan(Date.now() / 1000 + CLOCK_TOLERANCE_S)
  expect(uptimeS).toBeGreaterThanOrEqual(uptimesS.before)
  expect(uptimeS).toBeLessThan(uptimesS.after + (performance.now() - rewoundAt) / 1000)
  const number = Number(await sh(sandbox, 'cat /run/task/number'))
  expect(number).toBeGreaterThanOrEqual(saved.number)
  await sh(sandbox, waitFor(`[ "$(cat /run/task/number)" -gt ${number} ]`))
  expect(await sh(sandbox, 'cat /run/task/holder /run/task/waiter')).toBe('begin: 0\nadd 5: 5\nwaiting')
  expect(await sh(sandbox, LIST_PROCESSES)).toBe(saved.processes)
  await sh(sandbox, `echo > /run/task/go; ${waitFor('grep -q begin /run/task/waiter')}`)
  expect(await sh(sandbox, 'tail -qn 1 /run/task/holder /run/task/waiter; cat /run/task/errors')).toBe('commit: 5\nbegin: 5')
}

/** Periods for each wake-up of a timer that began before the checkpoint. */
const readTicks = async (clock: string): Promise<number[]> => (await sh(task, `cat /run/task/ticks-${clock}`)).split('\n').map(Number)

describe('a sandbox that is rewound', () => {
  it('goes on mid-task: the same connection commits, the lock is handed on, nobody has died', async () => {
    await destroy(task)
    const attached = await task.spawn({ argv: ['cat'], stdin: true })
    const ended = expect(attached.exited).rejects.toMatchObject({ message: 'sandbox task was rewound to task-ckpt-1 while this was running' })
    const at = await rewind(task)
    await ended
    await expectMidTask(task, at)
  })

  it('wakes a timer once for all that has gone by on the clock, and not at all for time that has not', async () => {
    const real = await readTicks('real')
    expect(real.filter((periods) => periods > GAP_PERIODS_MIN)).toHaveLength(1)
    expect(real.length).toBeLessThanOrEqual((await readTicks('boot')).reduce((sum, periods) => sum + periods, 0) + 1)
    expect(Math.max(...await readTicks('boot'))).toBeLessThan(GAP_PERIODS_MIN)
  })

  it('goes on mid-task when the daemon was killed in between', async () => {
    await killHard(await kosa8.daemon())
    await destroy(task)
    await expectMidTask(task, await rewind(task))
  })

  it('goes on mid-task as a clone of a clone with a checkpoint of its own', async () => {
    await rewind(task)
    const [child] = await task.fork({ names: ['child'] })
    const [grandchild] = await child?.sandbox?.fork({ names: ['grandchild'] }) ?? []
    const sandbox = grandchild?.sandbox as SandboxHandle
    const before = await readUptime(sandbox)
    await sandbox.checkpoint({ label: 'mid-task' })
    const after = await readUptime(sandbox)
    await destroy(sandbox)
    await expectMidTask(sandbox, await rewind(sandbox), { before, after })
    expect(await sh(task, 'tail -qn 1 /run/task/holder')).toBe('add 5: 5')
  })
})
