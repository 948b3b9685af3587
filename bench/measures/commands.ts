/**
 * `kosa8 checkpoint` and `kosa8 rewind` as somebody types them: the whole command, a process of its own, on a 1 GiB
 * sandbox in which a counter runs; and what each says of itself.
 *
 * Owns: a home with its own daemon for this, and its end.
 */
import { mkdir } from 'node:fs/promises'
import path from 'node:path'
import { childEnvironment, readSettings } from '../../src/config/environment.js'
import { findPackageRoot } from '../../src/util/package-root.js'
import { runProgram } from '../../src/util/spawn.js'
import type { Bed } from '../bed.js'
import type { Series } from '../statistics.js'

const CLI = path.join(findPackageRoot(), 'dist/src/cli/main.js')
const MEMORY = '1G'
/** State in memory alone. */
const COUNTER = 'i=0; while :; do i=$((i+1)); echo $i > /tmp/tick; sleep 1; done & until [ -s /tmp/tick ]; do sleep 0.1; done'

/** Runs a command line that must succeed. @returns what it printed */
type Ask = (...args: string[]) => Promise<string>

/** Measures `samples` checkpoints, each followed by a rewind to it. */
export async function measureCommands(bed: Bed, samples: number): Promise<Series[]> {
  const home = path.join(bed.scratch, 'commands')
  await mkdir(home, { mode: 0o700 })
  const env = childEnvironment({ ...readSettings(), home })
  const ask: Ask = async (...args) => {
    const { code, stdout, stderr } = await runProgram(process.execPath, [CLI, ...args], { env })
    if (code !== 0) throw new Error(`kosa8 ${args.join(' ')} ended with ${code}: ${stderr.toString()}`)
    return stdout.toString()
  }
  try {
    await ask('create', 'web', '--mem', MEMORY)
    await ask('exec', 'web', '--', 'sh', '-c', COUNTER)
    return await measureTurns(ask, samples, bed.signal)
  } finally {
    await ask('rm', 'web').catch(() => undefined)
    await ask('daemon', 'stop')
  }
}

async function measureTurns(ask: Ask, samples: number, signal: AbortSignal): Promise<Series[]> {
  const checkpoint: number[] = []
  const saved: number[] = []
  const rewind: number[] = []
  const restored: number[] = []
  for (let sample = 0; sample < samples; sample++) {
    signal.throwIfAborted()
    const taken = await time(() => ask('checkpoint', 'web', '--label', 'before migration', '--json'))
    checkpoint.push(taken.ms)
    const { checkpoint: { id }, save_ms } = JSON.parse(taken.printed) as { checkpoint: { id: string }; save_ms: number }
    saved.push(save_ms)
    await ask('exec', 'web', '--', 'rm', '/tmp/tick')
    const back = await time(() => ask('rewind', 'web', '--yes', '--json'))
    rewind.push(back.ms)
    restored.push((JSON.parse(back.printed) as { restore_ms: number }).restore_ms)
    await ask('exec', 'web', '--', 'cat', '/tmp/tick')
    await ask('checkpoint', 'rm', 'web', id)
  }
  return [
    { label: 'kosa8 checkpoint, 1 GiB: whole command', unit: 'ms', values: checkpoint },
    { label: 'kosa8 checkpoint, 1 GiB: save_ms', unit: 'ms', values: saved },
    { label: 'kosa8 rewind, 1 GiB: whole command', unit: 'ms', values: rewind },
    { label: 'kosa8 rewind, 1 GiB: restore_ms', unit: 'ms', values: restored },
  ]
}

async function time(work: () => Promise<string>): Promise<{ ms: number; printed: string }> {
  const startedAt = performance.now()
  const printed = await work()
  return { ms: performance.now() - startedAt, printed }
}
