/**
 * How many clones a second this machine makes when many are asked for at once, against bare QEMU starts.
 */
import { prepareBareClone } from '../bare-qemu.js'
import { runFirstCommand, type Bed } from '../bed.js'
import type { Series } from '../statistics.js'

const COUNTS = [1, 4, 16, 64]
/** Rounds per count: few where one round starts many machines. */
const ROUNDS: Record<number, number> = { 1: 10, 4: 6, 16: 4, 64: 2 }

/** Measures both, in turn, for every count up to `countMax`. */
export async function measureRate(bed: Bed, countMax: number): Promise<Series[]> {
  const series: Series[] = []
  for (const count of COUNTS.filter((each) => each <= countMax)) {
    const bare: number[] = []
    const ready: number[] = []
    const answered: number[] = []
    for (let round = 0; round < (ROUNDS[count] ?? 1); round++) {
      bed.signal.throwIfAborted()
      bare.push(await rateOfBareStarts(bed, count))
      const rates = await rateOfClones(bed, count)
      ready.push(rates.ready)
      answered.push(rates.answered)
    }
    series.push(
      { label: `${count} at once: bare QEMU`, unit: 'per s', values: bare },
      { label: `${count} at once: clones with identity`, unit: 'per s', values: ready },
      { label: `${count} at once: clones to first command`, unit: 'per s', values: answered },
    )
  }
  return series
}

async function rateOfBareStarts(bed: Bed, count: number): Promise<number> {
  const prepared = await Promise.all(Array.from({ length: count }, () => prepareBareClone(bed)))
  const startedAt = performance.now()
  const qemus = await Promise.all(prepared.map(({ start }) => start()))
  const rate = count / ((performance.now() - startedAt) / 1000)
  await Promise.all(qemus.map((qemu) => qemu.kill()))
  await Promise.all(prepared.map(({ dispose }) => dispose()))
  return rate
}

/** First commands begin when every clone is ready: none of them delays the identity of another clone. */
async function rateOfClones(bed: Bed, count: number): Promise<{ ready: number; answered: number }> {
  const startedAt = performance.now()
  const perSecond = (): number => count / ((performance.now() - startedAt) / 1000)
  const clones = await Promise.all(Array.from({ length: count }, () => bed.clone()))
  const ready = perSecond()
  await Promise.all(clones.map(({ session }) => runFirstCommand(session)))
  const answered = perSecond()
  await Promise.all(clones.map((clone) => bed.host.destroy(clone)))
  return { ready, answered }
}
