/**
 * A sandbox: one machine together with the session of its guest agent.
 *
 * Owns: the pair and the order of things around it: boot, identity before anything runs, quiesce
 * before a checkpoint, thaw after it. Does not own names, memory budgets or who may do what.
 * Callers: orchestrator (clones of trials), daemon (sandboxes of users), bench.
 */
import { randomBytes, randomUUID } from 'node:crypto'
import { openGuestSession } from '../guest/agent-session.js'
import type { GuestGateway, GuestIdentity, GuestSession } from '../guest/session.js'
import { Kosa8Error, toKosa8Error } from '../errors/kosa8-error.js'
import type { Driver, Machine, MachineHandle, SnapshotReport } from '../hypervisor/driver.js'

/** How long a booting guest may take until its agent answers, milliseconds. TCG needs about 3 s when idle. */
const BOOT_DEADLINE_MS = 90_000
/** How long a restored guest may take to answer, milliseconds. */
const RESTORE_DEADLINE_MS = 30_000

/** Milliseconds of the two parts of getting a machine ready. */
export interface ReadyTimings {
  /** Starting the machine and reaching its agent. */
  startMs: number
  /** Repairing clock, randomness and names. */
  identityMs: number
}

/** What a sandbox is besides its machine. */
export interface SandboxOptions {
  hostname: string
  /** Its way out besides a network card; null: none. Open before any process of the guest runs. */
  gateway: GuestGateway | null
  /** Nobody waits for the machine any more. */
  signal?: AbortSignal | undefined
}

/** A machine whose agent answers and whose identity is its own. */
export class Sandbox {
  private isCutOff = false
  private reaching: Promise<void> | null = null

  private constructor(
    readonly machine: Machine,
    private current: GuestSession,
    readonly hostname: string,
    /** Unique to this boot or restore; the guest reads it in /run/kosa8/clone-id. */
    readonly cloneId: string,
    readonly timings: ReadyTimings,
    private gateway: GuestGateway | null,
    /** The gateway was not open in the machine as it was found. */
    readonly gatewayIsNew: boolean,
  ) {
    this.watch(current)
  }

  /** The session of this moment; {@link reach} begins another when it broke off. */
  get session(): GuestSession {
    return this.current
  }

  /** Boots a fresh machine. Nothing is left behind on failure, nor when the signal fires meanwhile. */
  static async boot(driver: Driver, config: Parameters<Driver['boot']>[0], options: SandboxOptions): Promise<Sandbox> {
    const startedAt = performance.now()
    const machine = await driver.boot(config)
    return Sandbox.makeReady(machine, options, startedAt, BOOT_DEADLINE_MS)
  }

  /**
   * Builds a machine from a snapshot and gives it an identity of its own before any process in it runs.
   * @throws IDENTITY_NOT_REPAIRED when the guest does not confirm; the machine is destroyed then.
   */
  static async restore(driver: Driver, config: Parameters<Driver['restore']>[0], options: SandboxOptions): Promise<Sandbox> {
    const startedAt = performance.now()
    const machine = await driver.restore(config)
    return Sandbox.makeReady(machine, options, startedAt, RESTORE_DEADLINE_MS)
  }

  /** Attaches to a machine that outlived its owner; null when it is gone. Its identity is left as it is. */
  static async recover(driver: Driver, handle: MachineHandle, { hostname, gateway }: SandboxOptions): Promise<Sandbox | null> {
    const startedAt = performance.now()
    const machine = await driver.recover(handle)
    if (machine === null) return null
    try {
      await machine.resume()
      const session = await openGuestSession(await machine.openChannel(), { helloTimeoutMs: RESTORE_DEADLINE_MS, gateway })
      const gatewayIsNew = await session.setGateway(gateway)
      await session.thaw()
      const startMs = performance.now() - startedAt
      return new Sandbox(machine, session, hostname, '', { startMs, identityMs: 0 }, gateway, gatewayIsNew)
    } catch (error) {
      machine.detach()
      throw error
    }
  }

  private static async makeReady(
    machine: Machine, { hostname, gateway, signal }: SandboxOptions, startedAt: number, helloTimeoutMs: number,
  ): Promise<Sandbox> {
    // Nobody waits for a guest any more that is not wanted: what waits for it fails at once.
    const giveUp = (): void => void machine.destroy().catch(() => undefined)
    signal?.addEventListener('abort', giveUp, { once: true })
    try {
      signal?.throwIfAborted()
      const channel = await machine.openChannel()
      await machine.resume()
      const session = await openGuestSession(channel, { helloTimeoutMs, gateway })
      const reachedAt = performance.now()
      const gatewayIsNew = await session.setGateway(gateway)
      const identity = createIdentity(hostname)
      await repair(session, identity)
      const timings = { startMs: reachedAt - startedAt, identityMs: performance.now() - reachedAt }
      return new Sandbox(machine, session, hostname, identity.cloneId, timings, gateway, gatewayIsNew)
    } catch (error) {
      // A machine that could not be ended stays in the journal: both failures tell so.
      await machine.destroy().catch((failure: unknown) => { throw new AggregateError([error, failure], String(error)) })
      throw signal?.aborted === true ? signal.reason : error
    } finally {
      signal?.removeEventListener('abort', giveUp)
    }
  }

  /**
   * Opens another way out, or none, while it runs.
   * @returns true when the guest's port had to be opened or closed
   */
  async setGateway(gateway: GuestGateway | null): Promise<boolean> {
    const isNew = await this.current.setGateway(gateway)
    this.gateway = gateway
    return isNew
  }

  /**
   * Makes sure that there is a session: one may break off while the machine stands still (its host's disk was full, say).
   * @throws GUEST_UNREACHABLE, MACHINE_GONE
   */
  async reach(): Promise<void> {
    if (!this.isCutOff) return
    this.reaching ??= this.beginAnew().finally(() => { this.reaching = null })
    await this.reaching
  }

  private async beginAnew(): Promise<void> {
    const { gateway } = this
    const session = await openGuestSession(await this.machine.openChannel(), { helloTimeoutMs: RESTORE_DEADLINE_MS, gateway })
    await session.setGateway(gateway)
    await session.thaw()
    this.current = session
    this.isCutOff = false
    this.watch(session)
  }

  private watch(session: GuestSession): void {
    void session.ended.then(() => {
      if (this.current === session) this.isCutOff = true
    })
  }

  /**
   * Snapshots this sandbox while it goes on: its processes stand still only for the pause itself.
   * @param directory folder for memory and device state; must exist
   */
  async snapshot(directory: string): Promise<SnapshotReport & { frozenMs: number }> {
    let frozenAt = 0
    let frozenMs = 0
    const report = await this.machine.snapshot(directory, {
      beforePause: async () => {
        frozenAt = performance.now()
        await this.current.quiesce()
      },
      afterResume: async () => {
        await this.current.thaw()
        frozenMs = performance.now() - frozenAt
      },
    })
    return { ...report, frozenMs }
  }

  /** Ends the session and the machine, and removes what belonged to it; callers of commands are told `reason`. Safe to call twice. */
  async destroy(reason?: string): Promise<void> {
    this.current.end(reason)
    await this.machine.destroy()
  }

  /** Lets go of the machine; it goes on running and can be recovered by its handle. */
  detach(): void {
    this.current.end()
    this.machine.detach()
  }
}

function createIdentity(hostname: string): GuestIdentity {
  return { hostname, machineId: randomBytes(16).toString('hex'), cloneId: randomUUID(), entropy: randomBytes(64) }
}

/** A guest that falls silent or answers with something else has not confirmed either. */
async function repair(session: GuestSession, identity: GuestIdentity): Promise<void> {
  const report = await session.repairIdentity(identity).catch((cause: unknown) => {
    throw notRepaired(identity.hostname, toKosa8Error(cause).message, { cause })
  })
  const failed = Object.entries(report).filter(([, done]) => done !== true).map(([step]) => step)
  if (failed.length > 0) throw notRepaired(identity.hostname, failed.join(', '), { details: { failed } })
}

function notRepaired(hostname: string, what: string, facts: { cause?: unknown; details?: Record<string, unknown> }): Kosa8Error {
  return new Kosa8Error('IDENTITY_NOT_REPAIRED', `the guest of ${hostname} did not confirm: ${what}`, {
    hint: 'the machine was destroyed; try again, and check that the image is intact with `kosa8 image ls`', ...facts,
  })
}
