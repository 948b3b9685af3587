/**
 * Finding the machine of a sandbox again, for as long as that takes.
 *
 * Owns: trying again. A machine on a busy host, or one whose disk is full, may answer its new owner late; it is
 * somebody's work, so it is never given up while its process is there. Called by `sandbox-machines.ts` after a restart.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { Reservation } from '../model/reservation.js'
import type { SandboxHost } from '../sandbox/sandbox-host.js'
import type { Sandbox, SandboxOptions } from '../sandbox/sandbox.js'
import type { MachineRecord } from '../store/machine-store.js'

/** Pause after a try that failed, milliseconds; doubled up to the longest. Each try has deadlines of its own. */
const PAUSE_MS = { first: 500, longest: 15_000 } as const

/** What a search works with. */
export interface MachineSearchParts {
  host: SandboxHost
  record: MachineRecord
  /** What the sandbox is besides its machine, as of now. */
  options: () => Promise<SandboxOptions>
  /** What an earlier daemon had promised to it; null when that is not known. */
  reservation: Reservation | null
  onFailedTry: (error: unknown) => void
  /** Takes the machine over; null: it has ended. Not called once the search was given up. */
  onEnd: (sandbox: Sandbox | null) => Promise<void>
}

/** One search; it begins at once. */
export class MachineSearch {
  /** Settles once the machine is in somebody's hands, or gone. */
  readonly ended: Promise<void>
  private readonly givenUp = new AbortController()
  private dispose: (sandbox: Sandbox) => unknown = (sandbox) => sandbox.detach()

  constructor(private readonly parts: MachineSearchParts) {
    this.ended = this.search().then(async (sandbox) => {
      if (!this.givenUp.signal.aborted) await parts.onEnd(sandbox)
      else if (sandbox !== null) await this.dispose(sandbox)
    })
  }

  get reservation(): Reservation | null {
    return this.parts.reservation
  }

  /** Gives the search up and ends what it was looking for. */
  async endMachine(): Promise<void> {
    const { host, record } = this.parts
    this.dispose = (sandbox) => host.destroy(sandbox)
    this.givenUp.abort()
    await host.reap(record)
    await this.ended
  }

  /** Gives the search up; the machine is left to the next owner. */
  leave(): void {
    this.givenUp.abort()
  }

  private async search(): Promise<Sandbox | null> {
    const { host, record, options, onFailedTry } = this.parts
    const { signal } = this.givenUp
    for (let pauseMs: number = PAUSE_MS.first; ; pauseMs = Math.min(2 * pauseMs, PAUSE_MS.longest)) {
      try {
        return await host.recover(record, await options())
      } catch (error) {
        if (signal.aborted) return null
        onFailedTry(error)
      }
      await delay(pauseMs, undefined, { signal, ref: false }).catch(() => undefined)
      if (signal.aborted) return null
    }
  }
}
