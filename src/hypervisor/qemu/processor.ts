/**
 * What /proc/cpuinfo says about the host's processor.
 */
import { readFile } from 'node:fs/promises'

/** The host's processor. */
export interface Processor {
  /** e.g. "AMD EPYC". */
  name: string
  /**
   * Frequency of the time stamp counter, kHz; null where it cannot be told. In a virtual machine the kernel
   * shows that frequency; on bare metal it shows what the core runs at just now, which is another thing.
   */
  tscKhz: number | null
}

/** Reads it. */
export async function readProcessor(): Promise<Processor> {
  return parseProcessor(await readFile('/proc/cpuinfo', 'utf8'))
}

/** Parses the text of /proc/cpuinfo. */
export function parseProcessor(text: string): Processor {
  const field = (name: string): string => new RegExp(`^${name}\\s*:\\s*(.*)$`, 'm').exec(text)?.[1]?.trim() ?? ''
  const flags = new Set(field('flags').split(' '))
  const mhz = Number(field('cpu MHz'))
  const isCertain = flags.has('hypervisor') && flags.has('constant_tsc') && !flags.has('aperfmperf') && mhz > 0
  return { name: field('model name') || 'unknown', tscKhz: isCertain ? Math.round(mhz * 1000) : null }
}
