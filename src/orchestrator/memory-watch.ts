/**
 * Watches how much memory a machine has to itself while its trial runs, and whether it had to wait for room on the host's disk.
 *
 * Owns: sampling and the peak. The reservation is told of each new peak, so that the ledger follows
 * real use; what to do about it is the ledger's business.
 */
import type { Machine } from '../hypervisor/driver.js'

/** Milliseconds between samples: growth by a few hundred MiB cannot hide between two of them for long. */
const SAMPLE_INTERVAL_MS = 500

/** Samples a machine until stopped. */
export class MemoryWatch {
  private timer: NodeJS.Timeout | undefined
  private sampling: Promise<void> = Promise.resolve()
  private peak: number | null = null
  private cpu: number | null = null
  private hasStoodStill = false

  constructor(private readonly machine: Machine, private readonly onPeak: (privateBytes: number) => void) {}

  start(): void {
    this.timer = setInterval(() => { this.sampling = this.sample() }, SAMPLE_INTERVAL_MS)
    this.timer.unref()
  }

  /** Highest private bytes seen; null when no sample could be taken. */
  get peakPrivateBytes(): number | null {
    return this.peak
  }

  /** Processor time used by the machine, milliseconds. */
  get cpuMs(): number | null {
    return this.cpu
  }

  /** It stood still at a write at least once, the host's disk being full: what took too long may not have been the trial's fault. */
  get waitedForDisk(): boolean {
    return this.hasStoodStill
  }

  /** Takes a last sample and ends the watch. */
  async stop(): Promise<void> {
    clearInterval(this.timer)
    await this.sampling
    await this.sample()
  }

  private async sample(): Promise<void> {
    try {
      const { privateBytes, cpuMs, waitsForDisk } = await this.machine.inspect()
      if (waitsForDisk) this.hasStoodStill = true
      this.cpu = cpuMs
      if (privateBytes <= (this.peak ?? 0)) return
      this.peak = privateBytes
      this.onPeak(privateBytes)
    } catch {
      // The machine is gone: whoever uses it is told by its own call; the peak seen so far stands.
    }
  }
}
