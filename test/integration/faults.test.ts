/**
 * A daemon that is killed, or finds its disk full, at each single step of a checkpoint and of a rewind.
 *
 * A few steps of each here, spread evenly; `FAULT_STEPS=all npx vitest run test/integration/faults.test.ts` takes every one.
 */
import { readFile, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Kosa8Error } from '../../src/sdk/index.js'
import { Kosa8Client, type SandboxHandle } from '../../src/sdk/index.js'
import { measureDiskUse } from '../helpers/disk-use.js'
import { GuestState } from '../helpers/guest-state.js'
import { Kosa8 } from '../helpers/kosa8.js'

/** Steps of each operation that are tried: all, or so many. */
const STEPS = process.env['FAULT_STEPS'] === 'all' ? Infinity : Number(process.env['FAULT_STEPS'] ?? 2)
const TIMEOUT_MS = STEPS === Infinity ? 3_600_000 : 300_000

let kosa8: Kosa8
let plan: string
let box: SandboxHandle
let guest: GuestState
/** Where a rewind goes. */
let saved: { id: string; hash: string }

beforeAll(async () => {
  plan = `/tmp/kosa8-fault-${process.pid}`
  const preload = path.resolve(import.meta.dirname, '../helpers/fault-at-step.mjs')
  kosa8 = await Kosa8.open({ FAULT_PLAN: plan, NODE_OPTIONS: `--import ${preload}` })
  await kosa8.ask(['create', 'box', '--mem', '256M'])
  const client = new Kosa8Client({ home: kosa8.paths.home })
  box = client.sandbox('box')
  guest = new GuestState(box)
  await guest.begin()
  saved = { id: (await box.checkpoint({ label: 'base' })).checkpoint.id, hash: await guest.hash() }
})
afterAll(async () => {
  await kosa8.close()
  for (const file of [plan, `${plan}.log`]) await rm(file, { force: true })
})

type Fault = 'kill' | 'full'

/** Does something with a fault at one step. @returns how it failed, if it did, and the steps that were taken */
async function withFault(at: number, fault: Fault, work: () => Promise<unknown>): Promise<{ error: Kosa8Error | null; steps: string[] }> {
  await rm(`${plan}.log`, { force: true })
  await writeFile(plan, JSON.stringify({ at, fault }))
  try {
    const error = await work().then(() => null, (thrown: unknown) => thrown as Kosa8Error)
    return { error, steps: (await readFile(`${plan}.log`, 'utf8')).trim().split('\n') }
  } finally {
    await rm(plan, { force: true })
  }
}

/** The steps to be tried: first, last, and between them evenly. */
function chooseSteps(count: number): number[] {
  const wanted = Math.min(count, STEPS)
  return [...new Set(Array.from({ length: wanted }, (_, n) => 1 + Math.round((n * (count - 1)) / Math.max(1, wanted - 1))))]
}

/** The daemon of this home is started with the fault in it; a client in this process would start one without. */
const restart = async (): Promise<void> => { await kosa8.ask(['ls']) }

/** Everything on disk belongs to something, and every checkpoint restores; those that are not in the list go. */
async function expectInOrder(what: string): Promise<void> {
  // A machine that answers its new daemon late holds the sweeping back.
  await expect.poll(async () => (await measureDiskUse(kosa8.paths, kosa8.machines)).orphans, { message: what, timeout: 60_000 }).toEqual([])
  for (const { id } of await box.checkpoints()) if (id !== saved.id) await box.deleteCheckpoint(id)
}

describe.each<[string, Fault]>([['is killed', 'kill'], ['finds the disk full', 'full']])('a daemon that %s', (_, fault) => {
  it('at any step of a checkpoint leaves the sandbox running as it was, and the same command works afterwards', async () => {
    const take = () => kosa8.ask(['checkpoint', 'box', '--json'])
    const { steps } = await withFault(0, fault, take)
    await expectInOrder('without a fault')
    for (const at of chooseSteps(steps.length)) {
      const step = `step ${at} of ${steps.length}: ${steps[at - 1]}`
      await guest.change(`${fault}-${at}`, 1)
      const hash = await guest.hash()
      const { error } = await withFault(at, fault, take)
      if (fault === 'full' && error !== null) expect(error.message, step).toMatch(/needs (at least )?\d+ MiB on the disk of .* nothing was lost: .*make room/s)
      await restart()
      expect(await guest.hash(), step).toBe(hash)
      await take()
      const newest = (await box.checkpoints()).at(-1)
      await box.rewind()
      expect(await guest.hash(), `${newest?.id}, ${step}`).toBe(hash)
      await expectInOrder(step)
    }
    console.log(`${fault}: checkpoint, ${chooseSteps(steps.length).length} of ${steps.length} steps`)
  }, TIMEOUT_MS)

  it('at any step of a rewind leaves the sandbox or a checkpoint that restores, and the same command works afterwards', async () => {
    const goBack = () => kosa8.ask(['rewind', 'box', '--to', saved.id, '-y', '--json'])
    const { steps } = await withFault(0, fault, goBack)
    for (const at of chooseSteps(steps.length)) {
      const step = `step ${at} of ${steps.length}: ${steps[at - 1]}`
      await guest.change(`${fault}-${at}`, 1)
      const hash = await guest.hash()
      const { error } = await withFault(at, fault, goBack)
      await restart()
      const { state } = await box.describe()
      if (state === 'running') expect([hash, saved.hash], step).toContain(await guest.hash())
      else expect(error?.message, step).toContain(`restoreSnapshot("box", "${saved.id}")`)
      await goBack()
      expect(await guest.hash(), step).toBe(saved.hash)
      await expectInOrder(step)
    }
    console.log(`${fault}: rewind, ${chooseSteps(steps.length).length} of ${steps.length} steps`)
  }, TIMEOUT_MS)
})
