/**
 * From the request to rewind a sandbox to an agent that answers, with the process that ran at the
 * checkpoint running again; against a bare QEMU start.
 */
import { runInGuest } from '../../src/guest/run-in-guest.js'
import { prepareBareClone } from '../bare-qemu.js'
import { runFirstCommand, type Bed } from '../bed.js'
import type { Series } from '../statistics.js'

/** Measures `samples` rewinds of the sandbox the bed was made with. */
export async function measureRewind(bed: Bed, samples: number): Promise<Series[]> {
  const bare: number[] = []
  const rewind: number[] = []
  const command: number[] = []
  const source = await bed.sandboxes.machines.of(bed.source)
  // Its pipes stay open with this session; the process itself belongs to the guest.
  await source.session.exec({ argv: ['/bin/sleep', '1000000'] })
  const { id } = await bed.sandboxes.checkpoints.take(bed.source, { label: null })
  for (let sample = 0; sample < samples; sample++) {
    bed.signal.throwIfAborted()
    const prepared = await prepareBareClone(bed)
    const bareAt = performance.now()
    const qemu = await prepared.start()
    bare.push(performance.now() - bareAt)
    await qemu.kill()
    await prepared.dispose()
    const startedAt = performance.now()
    await bed.sandboxes.restore(bed.source, id)
    const { session } = await bed.sandboxes.machines.of(bed.source)
    // The identity is repaired by an answer of the agent: it answers now.
    rewind.push(performance.now() - startedAt)
    await runFirstCommand(session)
    command.push(performance.now() - startedAt)
    const { exit } = await runInGuest(session, { argv: ['/bin/sh', '-c', 'cat /proc/[0-9]*/comm | grep -qx sleep'] })
    if (exit.code !== 0) throw new Error('the process of the checkpoint does not run after a rewind')
  }
  return [
    { label: 'rewind: bare QEMU spawn to loaded', unit: 'ms', values: bare },
    { label: 'rewind: request to agent answering', unit: 'ms', values: rewind },
    { label: 'rewind: request to first command', unit: 'ms', values: command },
  ]
}
