/**
 * One sandbox, saved again and again, with rewinds, evictions and removals in between, all at random from a seed.
 *
 * Short here. The long form: `SOAK_CHECKPOINTS=200 SOAK_SEED=1 npx vitest run test/integration/soak.test.ts`; a failure
 * names the seed and the step, and comes again with it.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Kosa8Client, MAX_CHECKPOINTS_PER_SANDBOX, type SandboxHandle } from '../../src/sdk/index.js'
import { measureDiskUse, type DiskUse } from '../helpers/disk-use.js'
import { GuestState } from '../helpers/guest-state.js'
import { Kosa8, NOTHING_LEFT } from '../helpers/kosa8.js'
import { seededRandom } from '../helpers/random.js'

const CHECKPOINTS = Number(process.env['SOAK_CHECKPOINTS'] ?? 11)
const SEED = Number(process.env['SOAK_SEED'] ?? 1)
/** Most that a change writes to memory and to disk, MiB each. */
const CHANGE_MIB_MAX = 4
const TIMEOUT_MS = CHECKPOINTS * 60_000

let kosa8: Kosa8
let client: Kosa8Client
let box: SandboxHandle
let guest: GuestState

beforeAll(async () => {
  kosa8 = await Kosa8.open()
  client = new Kosa8Client({ home: kosa8.paths.home })
  await client.createSandbox({ name: 'box', memMb: 256 })
  box = client.sandbox('box')
  guest = new GuestState(box)
  await guest.begin()
})
afterAll(() => kosa8.close())

interface Saved { id: string; hash: string }

/** What has happened so far, for the report. */
interface Tally { checkpoints: number; rewinds: number; evictions: number; removals: number; dropped: number; steps: number }

describe(`a sandbox that was saved ${CHECKPOINTS} times (seed ${SEED})`, () => {
  const saved: Saved[] = []
  const tally: Tally = { checkpoints: 0, rewinds: 0, evictions: 0, removals: 0, dropped: 0, steps: 0 }
  const most: DiskUse = { checkpointBytes: 0, layerBytes: 0, layers: 0, depth: 0, orphans: [] }
  const random = seededRandom(SEED)
  const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)] as T

  const save = async (): Promise<void> => {
    await guest.change(`${SEED}-${tally.steps}`, 1 + Math.floor(random() * CHANGE_MIB_MAX))
    const { checkpoint, evicted } = await box.checkpoint({ label: `step ${tally.steps}` })
    saved.push({ id: checkpoint.id, hash: await guest.hash() })
    const surplus = saved.splice(0, Math.max(0, saved.length - MAX_CHECKPOINTS_PER_SANDBOX)).map(({ id }) => id)
    expect(evicted).toEqual(surplus)
    tally.checkpoints += 1
    tally.evictions += evicted.length
  }
  const goBack = async (): Promise<void> => {
    const target = pick(saved)
    await guest.change(`lost-${tally.steps}`, 1)
    const { dropped } = await box.rewind({ to: target.id })
    expect(await guest.hash()).toBe(target.hash)
    const later = saved.splice(saved.indexOf(target) + 1).map(({ id }) => id)
    expect(dropped).toEqual(later)
    tally.rewinds += 1
    tally.dropped += dropped.length
  }
  const remove = async (): Promise<void> => {
    const [{ id }] = saved.splice(Math.floor(random() * saved.length), 1) as [Saved]
    await box.deleteCheckpoint(id)
    tally.removals += 1
  }
  const look = async (): Promise<void> => {
    const use = await measureDiskUse(kosa8.paths, kosa8.machines)
    for (const key of ['checkpointBytes', 'layerBytes', 'layers', 'depth'] as const) most[key] = Math.max(most[key], use[key])
    expect(use.orphans).toEqual([])
  }

  it('has exactly the state of each checkpoint it goes back to, and leaves no orphan meanwhile', async () => {
    while (tally.checkpoints < CHECKPOINTS) {
      tally.steps += 1
      const roll = random()
      if (saved.length === 0 || roll < 0.72) await save()
      else if (roll < 0.88) await goBack()
      else await remove()
      expect((await box.checkpoints()).map(({ id }) => id), `step ${tally.steps}`).toEqual(saved.map(({ id }) => id))
      await look()
    }
  }, TIMEOUT_MS)

  it('can be put back to every checkpoint that is left', async () => {
    for (const { id, hash } of [...saved].reverse()) {
      await client.restoreSnapshot('box', id)
      expect(await guest.hash(), id).toBe(hash)
    }
  }, TIMEOUT_MS)

  it('took no more disk than ten checkpoints and the disk of two generations of layers', async () => {
    const memoryBytes = 256 * 2 ** 20
    console.log(JSON.stringify({ seed: SEED, ...tally, ...most }))
    expect(most.checkpointBytes).toBeLessThanOrEqual((MAX_CHECKPOINTS_PER_SANDBOX + 1) * (memoryBytes + 2 ** 20))
    expect(most.layers).toBeLessThanOrEqual(40)
    expect(most.depth).toBeLessThanOrEqual(17)
  })

  it('leaves nothing behind once it is removed', async () => {
    expect(await box.delete()).toEqual({ ok: true, checkpoints_dropped: saved.length })
    expect(await kosa8.listLeftovers()).toEqual(NOTHING_LEFT)
  })
})
