/**
 * How long a checkpoint stops a sandbox, by the memory the sandbox has written, against writing as many
 * bytes to a file in the same folder.
 */
import { writeSync } from 'node:fs'
import { mkdir, open, rm } from 'node:fs/promises'
import path from 'node:path'
import { runInGuest } from '../../src/guest/run-in-guest.js'
import type { Sandbox } from '../../src/sandbox/sandbox.js'
import type { Bed } from '../bed.js'
import type { Series } from '../statistics.js'

const WRITTEN_MIB = [1, 16, 64, 140, 256]
/** Checkpoints of one clone before the next takes its turn. */
const CHECKPOINTS_PER_CLONE = 6
const MIB = 1024 * 1024

/** What DESIGN promises: a fixed part, and a rate at which private pages are written. */
export const PAUSE_FIXED_MS = 10
export const PAUSE_BYTES_PER_MS = 1.5e6

/** Measures `samples` checkpoints of each size. */
export async function measurePause(bed: Bed, samples: number): Promise<Series[]> {
  const series = new Map<string, Series>()
  const add: Add = (label, unit, value) => {
    const found = series.get(label) ?? { label, unit, values: [] }
    series.set(label, { ...found, values: [...found.values, value] })
  }
  for (let done = 0; done < samples; done += CHECKPOINTS_PER_CLONE) {
    for (const writtenMib of WRITTEN_MIB) {
      const clone = await bed.clone()
      await writeMemory(clone, writtenMib)
      for (let turn = 0; turn < Math.min(CHECKPOINTS_PER_CLONE, samples - done); turn++) {
        bed.signal.throwIfAborted()
        await measureOne(bed, clone, `checkpoint, ${writtenMib} MiB written`, add)
      }
      await bed.host.destroy(clone)
      await bed.sandboxes.checkpoints.collectGarbage()
    }
  }
  return [...series.values()].sort((a, b) => a.label.localeCompare(b.label, 'en', { numeric: true }))
}

type Add = (label: string, unit: Series['unit'], value: number) => void

async function writeMemory(clone: Sandbox, mib: number): Promise<void> {
  const script = 'mkdir -p /mnt/bench && mount -t tmpfs -o size=90% tmpfs /mnt/bench'
    + ` && dd if=/dev/zero of=/mnt/bench/file bs=1M count=${mib} 2>/dev/null`
  const { exit, stderr } = await runInGuest(clone.session, { argv: ['/bin/sh', '-c', script] })
  if (exit.code !== 0) throw new Error(`the guest could not write ${mib} MiB: ${stderr.toString()}`)
}

async function measureOne(bed: Bed, clone: Sandbox, label: string, add: Add): Promise<void> {
  const directory = path.join(bed.scratch, 'checkpoint')
  await mkdir(directory)
  const startedAt = performance.now()
  const report = await clone.snapshot(directory)
  const totalMs = performance.now() - startedAt
  await bed.host.note(clone)
  await rm(directory, { recursive: true })
  const allowedMs = PAUSE_FIXED_MS + report.privateBytes / PAUSE_BYTES_PER_MS
  add(`${label}: private`, 'MiB', report.privateBytes / MIB)
  add(`${label}: vCPU pause`, 'ms', report.pauseMs)
  add(`${label}: processes frozen`, 'ms', report.frozenMs)
  add(`${label}: whole call`, 'ms', totalMs)
  add(`${label}: pause / (10 ms + private / 1.5 GB/s)`, 'times', report.pauseMs / allowedMs)
  const plainMs = await writePlainly(path.join(bed.scratch, 'plain'), report.privateBytes)
  add(`${label}: plain write of as much`, 'ms', plainMs)
}

async function writePlainly(file: string, sizeBytes: number): Promise<number> {
  const chunk = Buffer.alloc(MIB, 1)
  const handle = await open(file, 'wx')
  try {
    const startedAt = performance.now()
    for (let done = 0; done < sizeBytes; done += chunk.length) {
      writeSync(handle.fd, chunk, 0, Math.min(chunk.length, sizeBytes - done), done)
    }
    return performance.now() - startedAt
  } finally {
    await handle.close()
    await rm(file)
  }
}
