/**
 * `kosa8 checkpoint` and `kosa8 rewind` as somebody types them: the whole command, a process of its own, on a 1 GiB
 * sandbox in which a counter runs; and what each says of itself.
 */
import path from 'node:path'
import type { Bed } from '../bed.js'
import { withHome, type Type } from '../command-line.js'
import type { Series } from '../statistics.js'

const MEMORY = '1G'
/** State in memory alone. */
const COUNTER = 'i=0; while :; do i=$((i+1)); echo $i > /tmp/tick; sleep 1; done & until [ -s /tmp/tick ]; do sleep 0.1; done'

/** Measures `samples` checkpoints, each followed by a rewind to it. */
export async function measureCommands(bed: Bed, samples: number): Promise<Series[]> {
  return withHome(path.join(bed.scratch, 'commands'), async (type) => {
    try {
      await type('create', 'web', '--mem', MEMORY)
      await type('exec', 'web', '--', 'sh', '-c', COUNTER)
      return await measureTurns(type, samples, bed.signal)
    } finally {
      await type('rm', 'web').catch(() => undefined)
    }
  })
}

async function measureTurns(type: Type, samples: number, signal: AbortSignal): Promise<Series[]> {
  const checkpoint: number[] = []
  const saved: number[] = []
  const rewind: number[] = []
  const restored: number[] = []
  for (let sample = 0; sample < samples; sample++) {
    signal.throwIfAborted()
    const taken = await type('checkpoint', 'web', '--label', 'before migration', '--json')
    checkpoint.push(taken.ms)
    const { checkpoint: { id }, save_ms } = JSON.parse(taken.printed) as { checkpoint: { id: string }; save_ms: number }
    saved.push(save_ms)
    await type('exec', 'web', '--', 'rm', '/tmp/tick')
    const back = await type('rewind', 'web', '--yes', '--json')
    rewind.push(back.ms)
    restored.push((JSON.parse(back.printed) as { restore_ms: number }).restore_ms)
    await type('exec', 'web', '--', 'cat', '/tmp/tick')
    await type('checkpoint', 'rm', 'web', id)
  }
  return [
    { label: 'kosa8 checkpoint, 1 GiB: whole command', unit: 'ms', values: checkpoint },
    { label: 'kosa8 checkpoint, 1 GiB: save_ms', unit: 'ms', values: saved },
    { label: 'kosa8 rewind, 1 GiB: whole command', unit: 'ms', values: rewind },
    { label: 'kosa8 rewind, 1 GiB: restore_ms', unit: 'ms', values: restored },
  ]
}
