/**
 * Which machine a named sandbox runs on.
 *
 * Owns: the machines in this daemon's hands, those that are being made and those it still looks for after a
 * restart, each with the memory promised to it; and whose turn it is at a sandbox. Does not own: how a machine
 * is made (`sandboxes.ts`, `sandbox-restore.ts`) or looked for (`machine-search.ts`).
 */
import { setTimeout as delay } from 'node:timers/promises'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { Machine, MachineHandle } from '../hypervisor/driver.js'
import type { SandboxName } from '../model/ids.js'
import type { Reservation } from '../model/reservation.js'
import type { Sandbox } from '../sandbox/sandbox.js'
import type { MachineRecord } from '../store/machine-store.js'
import type { SandboxRecord } from '../store/sandbox-store.js'
import { Turns } from '../util/turns.js'
import { trustHostCertificates } from './host-certificates.js'
import { MachineSearch } from './machine-search.js'
import type { SandboxParts } from './sandbox-parts.js'

/** How long a start waits for machines to answer before others are served; those that are late are found later, milliseconds. */
const RECOVER_PATIENCE_MS = 5_000
/** How long a call waits for a machine that has not answered since the restart, milliseconds. */
const ANSWER_PATIENCE_MS = 30_000

interface Live {
  sandbox: Sandbox
  reservation: Reservation
}

/** What a sandbox runs on at a moment, in our hands or not. */
export interface Present {
  /** Memory promised to it; null: none, or not known. */
  reservation: Reservation | null
  /** Null when it has no machine, or one that does not answer. */
  machine: Machine | null
  /** Ends it, whatever it is; callers of its commands are told `reason`. The reservation stays. */
  end(reason: string): Promise<void>
}

/** Machines by the name of their sandbox. */
export class SandboxMachines {
  private readonly live = new Map<SandboxName, Live>()
  /** Being made, not there before that is done: what is going on with each now. */
  private readonly starting = new Map<SandboxName, string>()
  /** Of machines that have not answered this daemon yet. */
  private readonly searches = new Map<SandboxName, MachineSearch>()
  private readonly turns = new Turns()

  constructor(private readonly parts: SandboxParts) {}

  /** What changes a sandbox is done one after the other: checkpoints, rewinds, removals. */
  async inTurn<T>(name: SandboxName, work: () => Promise<T>): Promise<T> {
    return this.turns.take(name, work)
  }

  /** The running machine of a sandbox. @throws SANDBOX_UNKNOWN, MACHINE_GONE when it has none, GUEST_UNREACHABLE when it does not answer. */
  async of(name: SandboxName): Promise<Sandbox> {
    await this.waitForAnswer([name], ANSWER_PATIENCE_MS)
    const live = this.live.get(name)
    if (live !== undefined) {
      await live.sandbox.reach()
      return live.sandbox
    }
    await this.parts.store.read(name)
    throw createAbsent(name, this.stateOf(name))
  }

  /** Null when it does not run, or does not answer. */
  find(name: SandboxName): Sandbox | null {
    return this.live.get(name)?.sandbox ?? null
  }

  /** What there is to say of a sandbox that {@link find} finds no machine of. */
  stateOf(name: SandboxName): 'starting' | 'unreachable' | 'gone' {
    if (this.starting.has(name)) return 'starting'
    return this.searches.has(name) ? 'unreachable' : 'gone'
  }

  /** What is going on with a sandbox that is being made, in a line; null for others. */
  stepOf(name: SandboxName): string | null {
    return this.starting.get(name) ?? null
  }

  /** Marks a sandbox as being made until `work` ends, which says each step that begins. */
  async whileStarting<T>(name: SandboxName, work: (onStep: (step: string) => void) => Promise<T>): Promise<T> {
    const onStep = (step: string): void => { this.starting.set(name, step) }
    onStep('starting')
    try {
      return await work(onStep)
    } finally {
      this.starting.delete(name)
    }
  }

  /** Makes a machine that runs the sandbox's own; it is tidied up when it ends. */
  async adopt(
    name: SandboxName, sandbox: Sandbox, reservation: Reservation, more: Partial<Pick<SandboxRecord, 'repository' | 'parent'>> = {},
  ): Promise<void> {
    await this.parts.store.update(name, { ...more, machine: sandbox.machine.handle.id })
    if (sandbox.gatewayIsNew && sandbox.session.hasGateway) {
      await trustHostCertificates(sandbox.session, this.parts.caBundle)
        .catch((error: unknown) => this.parts.onError(`sandbox ${name} does not know the host's certificates`, error))
    }
    this.live.set(name, { sandbox, reservation })
    void this.tidyAfter(name, sandbox).catch((error: unknown) => this.parts.onError(`sandbox ${name} could not be tidied up`, error))
  }

  private async tidyAfter(name: SandboxName, sandbox: Sandbox): Promise<void> {
    const exit = await sandbox.machine.exited
    await this.inTurn(name, async () => {
      if (exit.expected || this.live.get(name)?.sandbox !== sandbox) return
      this.parts.onError(`the machine of sandbox ${name} ended: ${exit.message}`, null)
      await this.end(name)
    })
  }

  /** Ends the machine of a sandbox; its record and checkpoints stay. */
  async end(name: SandboxName): Promise<void> {
    await this.endPresent(name, `sandbox ${name} has no machine any more: it ended while this was running`)
    await this.parts.store.update(name, { machine: null })
  }

  /** Ends what a sandbox runs on and gives its memory back; callers of its commands are told `reason`. */
  async endPresent(name: SandboxName, reason: string): Promise<void> {
    const present = await this.presentOf(name)
    await present.end(reason)
    if (present.reservation !== null) await this.parts.release(present.reservation.id)
  }

  async presentOf(name: SandboxName): Promise<Present> {
    const { host, store, machines } = this.parts
    const live = this.live.get(name)
    const search = this.searches.get(name)
    const { machine } = await store.read(name)
    const record = machine === null ? null : await machines.read(machine)
    return {
      reservation: live?.reservation ?? search?.reservation ?? null,
      machine: live?.sandbox.machine ?? null,
      end: async (reason) => {
        if (this.live.get(name) === live) this.live.delete(name)
        if (this.searches.get(name) === search) this.searches.delete(name)
        if (live !== undefined) await host.destroy(live.sandbox, reason)
        else if (search !== undefined) await search.endMachine()
        else if (record !== null) await host.reap(record)
      },
    }
  }

  /**
   * Looks for the machine of every sandbox after a restart, and ends the machines that are nobody's.
   * @param reservations what an earlier daemon had promised to sandboxes; what nobody needs any more is released
   */
  async recover(reservations: readonly Reservation[]): Promise<void> {
    const { host, machines, store, release } = this.parts
    const records = new Map((await machines.list()).map((record) => [record.id, record]))
    const known = new Set<string>()
    for (const { name, machine } of await store.list()) {
      const record = machine === null ? undefined : records.get(machine)
      if (record === undefined) {
        if (machine !== null) await store.update(name, { machine: null })
        continue
      }
      known.add(record.id)
      this.seek(name, record, reservations.find(({ holder }) => holder === `sandbox ${name}`) ?? null)
    }
    const promised = new Set([...this.searches.values()].map(({ reservation }) => reservation?.id))
    await this.waitForAnswer([...this.searches.keys()], RECOVER_PATIENCE_MS)
    for (const { id } of reservations) if (!promised.has(id)) await release(id)
    // Trials of a worker that is alive are spared: their owner is.
    await host.reapWhere(({ id, purpose }) => purpose.kind === 'trial' || !known.has(id))
  }

  /** Looks for a sandbox's machine until it answers or is gone. */
  private seek(name: SandboxName, record: MachineRecord, reservation: Reservation | null): void {
    const { host, onError } = this.parts
    const search: MachineSearch = new MachineSearch({
      host, record, reservation,
      options: async () => ({ hostname: name, gateway: this.parts.gateways.of(name, (await this.parts.store.read(name)).egress) }),
      onFailedTry: (error) => onError(`sandbox ${name} does not answer yet`, error),
      onEnd: async (sandbox) => {
        try {
          if (sandbox === null) await this.forgetEnded(name, record, reservation)
          else await this.adopt(name, sandbox, reservation ?? await this.parts.reserve(name, sandbox.machine.handle.shape.memoryMib))
        } catch (error) {
          sandbox?.detach()
          onError(`sandbox ${name} could not be taken over`, error)
        } finally {
          if (this.searches.get(name) === search) this.searches.delete(name)
        }
      },
    })
    this.searches.set(name, search)
  }

  /** No machine is being looked for any more. */
  get areAllFound(): boolean {
    return this.searches.size === 0
  }

  /** Settles once that is so. */
  async allAnswered(): Promise<void> {
    await Promise.all([...this.searches.values()].map(({ ended }) => ended))
  }

  /** Waits until none of these sandboxes is being looked for any more, at most so long. */
  private async waitForAnswer(names: readonly SandboxName[], ms: number): Promise<void> {
    const searches = names.map((name) => this.searches.get(name)?.ended).filter((ended) => ended !== undefined)
    if (searches.length === 0) return
    const over = new AbortController()
    await Promise.race([Promise.all(searches), delay(ms, undefined, { signal: over.signal }).catch(() => undefined)])
    over.abort()
  }

  /** Its process had ended before this daemon began. */
  private async forgetEnded(name: SandboxName, record: MachineRecord, reservation: Reservation | null): Promise<void> {
    await this.parts.store.update(name, { machine: null })
    await this.parts.host.reap(record)
    if (reservation !== null) await this.parts.release(reservation.id)
  }

  /** Every machine there is, with the layers it writes to; null while one has not answered: its journal may be of before a snapshot. */
  async handles(): Promise<MachineHandle[] | null> {
    if (!this.areAllFound) return null
    const journalled = (await this.parts.machines.list()).map(({ handle }) => handle).filter((handle) => handle !== null)
    return [...journalled, ...[...this.live.values()].map(({ sandbox }) => sandbox.machine.handle)]
  }

  /** Lets go of every machine; they go on running. */
  detachAll(): void {
    for (const search of this.searches.values()) search.leave()
    for (const { sandbox } of this.live.values()) sandbox.detach()
    this.live.clear()
  }
}

function createAbsent(name: SandboxName, state: 'starting' | 'unreachable' | 'gone'): Kosa8Error {
  switch (state) {
    case 'starting':
      return new Kosa8Error('GUEST_UNREACHABLE', `sandbox ${name} is still being made`, { hint: 'try again once `kosa8 ls` shows it as running' })
    case 'unreachable':
      return new Kosa8Error('GUEST_UNREACHABLE', `the machine of sandbox ${name} runs, but has not answered since the daemon was started`, {
        hint: `it is tried again and again: wait, or go back to a checkpoint with: kosa8 rewind ${name}`,
      })
    case 'gone':
      return new Kosa8Error('MACHINE_GONE', `the machine of sandbox ${name} has ended`, {
        hint: `go back to a checkpoint with: kosa8 rewind ${name}, or remove it with: kosa8 rm ${name}`,
      })
  }
}
