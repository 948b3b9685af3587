/**
 * The benchmark of forking: clones, their memory, checkpoints and rewinds, each against what this very
 * machine can do at best, measured in turn.
 *
 *   npm run bench                               everything, some minutes; the machine should be idle
 *   npm run bench -- --only clone,pause --samples 6
 *
 * Owns: the order of the measures and the end of everything they started, Ctrl-C included. Asserts nothing.
 */
import { parseArgs } from 'node:util'
import { toKosa8Error } from '../src/errors/kosa8-error.js'
import { CleanupStack } from '../src/util/cleanup.js'
import { killBareQemus } from './bare-qemu.js'
import { makeBed, type Bed } from './bed.js'
import { readMachineFacts } from './machine-facts.js'
import { measureClone } from './measures/clone.js'
import { measureCommands } from './measures/commands.js'
import { measureForkRun } from './measures/fork-run.js'
import { measurePause } from './measures/pause.js'
import { measurePrivateMemory } from './measures/private-memory.js'
import { measureRate } from './measures/rate.js'
import { measureRewind } from './measures/rewind.js'
import { renderTable, writeResult } from './report.js'
import type { Series } from './statistics.js'
import { compareWithTargets } from './targets.js'

const MEASURES: Record<string, (bed: Bed, samples: number) => Promise<Series[]>> = {
  clone: measureClone,
  // All the counts in a run that is to say something; a quick look needs no 64 machines.
  rate: (bed, samples) => measureRate(bed, samples >= 30 ? 64 : 4),
  memory: (bed) => measurePrivateMemory(bed, 6),
  pause: measurePause,
  commands: measureCommands,
  // Each run takes ten seconds, of which six are waited.
  run: (bed, samples) => measureForkRun(bed, Math.ceil(samples / 3)),
  // The last: it replaces the sandbox the checkpoint was taken of.
  rewind: measureRewind,
}

const EXIT_FAILED = 1
const EXIT_INTERRUPTED = 130

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { only: { type: 'string' }, samples: { type: 'string', default: '30' } } })
  const wanted = values.only?.split(',') ?? Object.keys(MEASURES)
  const unknown = wanted.find((name) => MEASURES[name] === undefined)
  if (unknown !== undefined) throw new Error(`there is no measure ${unknown}; there are: ${Object.keys(MEASURES).join(', ')}`)
  const interrupt = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.on(name, () => interrupt.abort())
  const cleanup = new CleanupStack()
  try {
    await run(wanted, Number(values.samples), cleanup, interrupt.signal)
  } catch (error) {
    process.exitCode = interrupt.signal.aborted ? EXIT_INTERRUPTED : EXIT_FAILED
    console.error(interrupt.signal.aborted ? 'interrupted; everything is being removed' : toKosa8Error(error).stack)
  } finally {
    await cleanup.run()
  }
}

async function run(wanted: string[], samples: number, cleanup: CleanupStack, signal: AbortSignal): Promise<void> {
  const startedAt = new Date()
  const bed = await makeBed(cleanup, signal)
  cleanup.defer('end bare machines', killBareQemus)
  const machine = await readMachineFacts(await bed.driver.fingerprint())
  const series: Series[] = []
  for (const name of wanted) {
    console.error(`measuring: ${name}`)
    series.push(...await MEASURES[name]?.(bed, samples) ?? [])
  }
  const result = {
    benchmark: 'fork', startedAt: startedAt.toISOString(), tookS: (Date.now() - startedAt.getTime()) / 1000, machine, series,
    targets: compareWithTargets(series),
  }
  console.log(renderTable(result))
  console.log(`\n${await writeResult(result)}`)
}

await main()
