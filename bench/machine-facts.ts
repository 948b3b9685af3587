/**
 * What a figure was measured on; without it the figure says nothing.
 */
import { readFile } from 'node:fs/promises'
import os from 'node:os'
import type { Fingerprint } from '../src/hypervisor/driver.js'
import { findPackageRoot } from '../src/util/package-root.js'
import { runProgram } from '../src/util/spawn.js'

/** Facts of the host, as they stand in a result. */
export interface MachineFacts {
  processor: string
  cores: number
  memoryMib: number
  kernel: string
  node: string
  qemu: string
  accelerator: string
  machineType: string
  /** Load of the last 1, 5 and 15 minutes when the benchmark began. */
  loadBefore: number[]
  commit: string
  /** Tracked files differ from that commit. */
  isModified: boolean
}

/** Reads them. */
export async function readMachineFacts(fingerprint: Fingerprint): Promise<MachineFacts> {
  const cpuinfo = await readFile('/proc/cpuinfo', 'utf8')
  const changes = await git('status', '--porcelain', '--untracked-files=no')
  return {
    processor: /^model name\s*:\s*(.*)$/m.exec(cpuinfo)?.[1] ?? 'unknown',
    cores: os.availableParallelism(),
    memoryMib: Math.round(os.totalmem() / 1024 / 1024),
    kernel: os.release(),
    node: process.version,
    qemu: fingerprint.version,
    accelerator: fingerprint.accelerator,
    machineType: fingerprint.machineType,
    loadBefore: os.loadavg().map((load) => Math.round(load * 100) / 100),
    commit: await git('rev-parse', 'HEAD'),
    isModified: changes !== '',
  }
}

async function git(...args: string[]): Promise<string> {
  const { stdout } = await runProgram('git', ['-C', findPackageRoot(), ...args])
  return stdout.toString().trim()
}
