/**
 * Takes trials from the queue as memory allows and runs each to its stored record.
 *
 *   next trial seen → room on the disk → memory granted → trial claimed → twin of an earlier attempt ended → runTrial → claim ended
 *
 * Owns: this order, how many trials of a run go on at once, and what becomes of a claim after each kind
 * of end. Does not own: the queue, the ledger, what a trial does.
 */
import { Kosa8Error, serialiseError, toKosa8Error } from '../errors/kosa8-error.js'
import type { MachineSnapshot } from '../hypervisor/driver.js'
import type { HostProxies } from '../model/egress.js'
import { BASELINE_LABEL, type RunId } from '../model/ids.js'
import type { RunPlan, TrialRecord } from '../model/run.js'
import type { ClaimedTrial, RunQueue, TrialJob } from '../queue/queue.js'
import type { SandboxHost } from '../sandbox/sandbox-host.js'
import type { Sandbox } from '../sandbox/sandbox.js'
import type { NewRunEvent } from '../store/event-log.js'
import type { Paths } from '../store/paths.js'
import type { RunStore } from '../store/run-store.js'
import { countOf } from '../util/count-of.js'
import { createDeferred } from '../util/deferred.js'
import { onceThereIsRoom, requireFreeSpace } from '../util/disk-space.js'
import type { HeldReservation, Reservations } from './reservations.js'
import { START_DISK_BYTES } from './sandboxes.js'
import { runTrial } from './trial-run.js'

/** Time before a trial that was displaced for its memory may be claimed again, milliseconds. */
const PREEMPTED_DELAY_MS = 5_000

/** What a trial worker works with; all injected by `workers/`. */
export interface TrialWorkerParts {
  queue: RunQueue
  runs: RunStore
  paths: Paths
  host: SandboxHost
  hostProxies: HostProxies
  reservations: Reservations
  /** Checked snapshot of a plan's checkpoint. @throws CHECKPOINT_UNKNOWN, CHECKPOINT_CORRUPT */
  loadSnapshot: (plan: RunPlan) => Promise<MachineSnapshot>
  /** Virtual processors that may be at work at once in trials of runs that set no number of their own. */
  processorsMax: number
  /** Keeps a clone for later, as the plan asks; called before it is destroyed. */
  keepClone: (plan: RunPlan, sandbox: Sandbox, record: TrialRecord) => Promise<void>
  /** Name of this worker in the queue. */
  name: string
  onError: (message: string, error: unknown) => void
}

/** Runs trials until told to stop. */
export class TrialWorker {
  private readonly active = new Map<RunId, number>()
  private processorsAtWork = 0
  /** The trial that was last told to wait for processors or room: it is told once. */
  private toldToWait: string | null = null
  private readonly working = new Set<Promise<void>>()
  private slotFreed = createDeferred<void>()

  constructor(private readonly parts: TrialWorkerParts) {}

  /** Trials being worked on now. */
  get activeCount(): number {
    return this.working.size
  }

  /** Takes trials until `signal` fires, then gives back what it holds and resolves. */
  async work(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        if (!await this.takeNext(signal)) await this.waitForChange(signal)
      } catch (error) {
        if (signal.aborted) break
        this.parts.onError('taking a trial failed', error)
        await this.waitForChange(signal)
      }
    }
    await Promise.all(this.working)
  }

  /** @returns false when there is nothing to take now. */
  private async takeNext(signal: AbortSignal): Promise<boolean> {
    const { queue, runs } = this.parts
    const job = await queue.peekTrial()
    if (job === null) return false
    const plan = await runs.readPlan(job.run)
    if (plan === null) return false
    const processors = await this.parts.loadSnapshot(plan).then(({ shape }) => shape.cpus, () => 1)
    if (this.isFull(job, plan, processors) || await this.lacksRoom(job)) return false
    const memory = await this.reserve(job, plan, signal)
    if (memory === null) return true
    const claim = await queue.claimTrial(this.parts.name).catch((error: unknown) => {
      memory.held?.release()
      throw error
    })
    if (claim === null) {
      memory.held?.release()
      return false
    }
    this.track(claim, processors, this.process(claim, memory, signal))
    return true
  }

  /** Null when the run was cancelled meanwhile; `held` is null when the memory can never be had. */
  private async reserve(job: TrialJob, plan: RunPlan, signal: AbortSignal): Promise<Memory | null> {
    const startedAt = performance.now()
    const waited = (): number => Math.round(performance.now() - startedAt)
    try {
      const memoryMib = (await this.parts.loadSnapshot(plan)).shape.memoryMib
      const held = await this.parts.reservations.acquire(
        { run: job.run, trial: job.trial, label: job.label, checkpoint: plan.checkpoint.id, memoryMib },
        { signal, onWaiting: (message) => this.tell(job, { phase: 'waiting', message }) })
      return { held, waitedMs: waited(), refusal: null }
    } catch (error) {
      signal.throwIfAborted()
      const refusal = toKosa8Error(error)
      if (refusal.code === 'CANCELLED') return null
      return { held: null, waitedMs: waited(), refusal }
    }
  }

  private async process(claim: ClaimedTrial, memory: Memory, stop: AbortSignal): Promise<void> {
    const { runs, host } = this.parts
    try {
      if (await runs.readTrialRecord(claim) !== null) return await this.finish(claim)
      // A worker that lost this trial may still have its clone: two must never work for one trial.
      await host.reapWhere(({ purpose }) => purpose.kind === 'trial' && purpose.trial === claim.trial, { ownerMayLive: true })
      if (memory.refusal !== null) throw memory.refusal
      if (claim.givenUp !== null) throw new Kosa8Error('INTERNAL', claim.givenUp)
      await this.run(claim, memory, stop)
      await this.finish(claim)
    } catch (error) {
      await this.endBadly(claim, error, stop).catch((failure: unknown) => this.parts.onError(`ending ${claim.trial} failed`, failure))
    } finally {
      memory.held?.release()
    }
  }

  /** Its result is stored: a queue that cannot note the end delivers it again, and then the record is found. */
  private async finish(claim: ClaimedTrial): Promise<void> {
    await claim.finish().catch((error: unknown) => this.parts.onError(`the end of ${claim.trial} could not be told to the queue`, error))
  }

  private async run(claim: ClaimedTrial, memory: Memory, stop: AbortSignal): Promise<void> {
    const { runs, paths, host } = this.parts
    const plan = await runs.readPlan(claim.run)
    if (plan === null) throw new Kosa8Error('STORE_CORRUPT', `the plan of ${claim.run} is gone`)
    const held = memory.held as HeldReservation
    const record = await runTrial({
      plan, trial: claim.trial, label: claim.label, repeat: claim.repeat, attempt: claim.attempt,
      snapshot: await this.parts.loadSnapshot(plan), host, hostProxies: this.parts.hostProxies,
      directory: paths.trialDirectory(claim.run, claim.label, claim.repeat),
      runDirectory: paths.runDirectory(claim.run),
      reporter: {
        phase: (phase, message) => this.tell(claim, { phase, message }),
        output: (stream, text) => this.append(claim.run, { type: 'trial-output', label: claim.label, repeat: claim.repeat, stream, text }),
      },
      reservedBytes: held.bytes,
      waitedMs: memory.waitedMs,
      onMemoryPeak: (bytes) => held.reportPeak(bytes),
      signal: AbortSignal.any([stop, claim.lost, held.withdrawn]),
      store: (done) => this.store(claim, done, AbortSignal.any([stop, claim.lost, held.withdrawn])),
      beforeDestroy: (sandbox, done) => this.parts.keepClone(plan, sandbox, done),
    })
    this.tellEnd(claim, record)
  }

  /**
   * The store decides: a second result, or one of an attempt that was superseded, does not count. Where the disk is full the
   * result waits, with its clone, for room.
   */
  private async store(claim: ClaimedTrial, record: TrialRecord, signal: AbortSignal): Promise<void> {
    const outcome = await onceThereIsRoom(() => this.parts.runs.storeTrialRecord(claim.run, record), signal, (error) => {
      this.parts.onError(`the result of ${claim.trial} waits for room`, error)
    })
    if (!outcome.accepted) this.parts.onError(`result of ${claim.trial}, attempt ${claim.attempt}, not accepted: ${outcome.reason}`, null)
  }

  private async endBadly(claim: ClaimedTrial, thrown: unknown, stop: AbortSignal): Promise<void> {
    const error = toKosa8Error(thrown)
    this.parts.onError(`${claim.trial}, attempt ${claim.attempt}: ${error.code} ${error.message}`, thrown)
    if (claim.lost.aborted) return
    if (error.code === 'CANCELLED') {
      await claim.fail(error, { retry: false })
    } else if (stop.aborted || error.code === 'PREEMPTED') {
      await claim.putBack(error.message, error.code === 'PREEMPTED' ? PREEMPTED_DELAY_MS : 0)
      this.tell(claim, { phase: 'queued', message: error.message })
    } else if (claim.isLastAttempt || claim.givenUp !== null || !isWorthARetry(error)) {
      const record = errorRecordOf(claim, await this.parts.runs.readPlan(claim.run), error)
      await this.store(claim, record, AbortSignal.any([stop, claim.lost]))
      this.tellEnd(claim, record)
      await claim.fail(error, { retry: false })
    } else {
      this.tell(claim, { phase: 'queued', message: `tried again: ${error.message}` })
      await claim.fail(error, { retry: true })
    }
  }

  private track(claim: ClaimedTrial, processors: number, work: Promise<void>): void {
    this.active.set(claim.run, (this.active.get(claim.run) ?? 0) + 1)
    this.processorsAtWork += processors
    const tracked = work.finally(() => {
      this.processorsAtWork -= processors
      this.active.set(claim.run, (this.active.get(claim.run) ?? 1) - 1)
      this.working.delete(tracked)
      this.slotFreed.resolve()
      this.slotFreed = createDeferred<void>()
    })
    this.working.add(tracked)
  }

  /** The run's own number decides where there is one, else the host's processors; one trial may always run. */
  private isFull(job: TrialJob, plan: RunPlan, processors: number): boolean {
    if (plan.parallel !== null) return (this.active.get(job.run) ?? 0) >= plan.parallel
    const isFull = this.processorsAtWork > 0 && this.processorsAtWork + processors > this.parts.processorsMax
    if (isFull) this.tellToWait(job, `needs ${countOf(processors, 'processor')}, ${this.processorsAtWork} of ${this.parts.processorsMax} at work`)
    return isFull
  }

  /** A trial begun without room would stand still at once, and use up its attempts. */
  private async lacksRoom(job: TrialJob): Promise<boolean> {
    return requireFreeSpace({
      what: `trial ${job.label}/${job.repeat}`, folder: this.parts.paths.layers, neededBytes: START_DISK_BYTES, isLeast: true,
      kept: 'it begins once there is room',
    }).then(() => false, (error: unknown) => {
      this.tellToWait(job, toKosa8Error(error).message)
      return true
    })
  }

  private tellToWait(job: TrialJob, message: string): void {
    if (this.toldToWait === job.trial) return
    this.toldToWait = job.trial
    this.tell(job, { phase: 'waiting', message })
  }

  private async waitForChange(signal: AbortSignal): Promise<void> {
    await Promise.race([this.parts.queue.waitForWork(signal), this.slotFreed.promise])
  }

  private tell(job: TrialJob, event: { phase: Extract<NewRunEvent, { type: 'trial-phase' }>['phase']; message: string }): void {
    this.append(job.run, { type: 'trial-phase', label: job.label, repeat: job.repeat, ...event })
  }

  private tellEnd(job: TrialJob, record: TrialRecord): void {
    this.append(job.run, { type: 'trial-end', label: job.label, repeat: job.repeat, state: record.state, summary: summarise(record) })
  }

  private append(run: RunId, event: NewRunEvent): void {
    this.parts.runs.appendEvent(run, event).catch((error: unknown) => this.parts.onError(`event of ${run} lost`, error))
  }
}

/** What `reserve` came to. */
interface Memory {
  held: HeldReservation | null
  waitedMs: number
  refusal: Kosa8Error | null
}

/** A broken checkpoint, too little memory or a bad module will be no better the next time. */
function isWorthARetry(error: Kosa8Error): boolean {
  return !['MEMORY_INSUFFICIENT', 'CHECKPOINT_CORRUPT', 'CHECKPOINT_UNKNOWN', 'CHECKPOINT_INCOMPATIBLE',
    'APPROACH_INVALID', 'PROGRAM_MISSING', 'REPOSITORY_INVALID'].includes(error.code)
}

function errorRecordOf(claim: ClaimedTrial, plan: RunPlan | null, error: Kosa8Error): TrialRecord {
  const approach = plan?.approaches.find(({ label }) => label === claim.label)
  return {
    trial: claim.trial, approach: approach?.approach ?? BASELINE_LABEL, label: claim.label, repeat: claim.repeat,
    parameters: approach?.parameters ?? {}, attempt: claim.attempt, state: 'error', diff: null, tests: null, ownTests: null,
    tampered: [], exitCode: null, timingsMs: {}, memory: { reservedBytes: null, peakPrivateBytes: null },
    usage: { cpuMs: null, inputTokens: null, outputTokens: null, costUsd: null }, notes: [], log: null,
    error: serialiseError(error),
  }
}

/** One line for progress displays, beside the state; names and numbers only, nothing the guest wrote. */
function summarise(record: TrialRecord): string {
  if (record.error !== null) return record.error.message
  const parts: string[] = []
  if (record.diff !== null) parts.push(`${countOf(record.diff.files, 'file')}, +${record.diff.insertions} -${record.diff.deletions}`)
  if (record.tests !== null) {
    const passed = record.tests.cases.filter(({ status }) => status === 'passed').length
    parts.push(record.tests.cases.length === 0 ? record.tests.reason ?? 'no tests' : `${passed}/${record.tests.cases.length} tests passed`)
  }
  return parts.join(', ')
}
