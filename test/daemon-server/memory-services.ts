/**
 * The daemon's services in memory: what tests of the server, the SDK and the CLI run against.
 *
 * Runs do what their script says: tests push events and finish them by hand.
 */
import { EventEmitter, once } from 'node:events'
import { Readable } from 'node:stream'
import { Kosa8Error } from '../../src/errors/kosa8-error.js'
import type { RunDocument, RunEvent } from '../../src/model/run.js'
import type {
  DaemonService, ReservationService, RunService, SandboxService, Services,
} from '../../src/daemon/services.js'
import type { ReservationLine, ReservationRequest, ReservationUsage } from '../../src/protocol/reservations.js'
import type { ApplyRunRequest, CancelRunRequest, RunRequest, RunStatus } from '../../src/protocol/runs.js'
import type { CreateSandboxRequest, CreateSnapshotRequest, ExecRequest, SandboxDescription, SnapshotDescription } from '../../src/protocol/sandboxes.js'
import { BUILD, VERSION, type DaemonStatus } from '../../src/protocol/status.js'
import { ApprovalBook } from '../../src/daemon/approval-book.js'
import type { ApprovalRecord } from '../../src/store/approval-store.js'
import { systemClock } from '../../src/util/clock.js'
import { createDeferred } from '../../src/util/deferred.js'
import { fingerprintOf, normalisePublicKey } from '../../src/util/ed25519.js'
import { MemoryProcess } from './memory-process.js'

export const RUN_ID = 'r20260102-030405-0a0b0c0d'

export class MemoryDaemon implements DaemonService {
  version = VERSION
  build = BUILD
  running = { sandboxes: 0, runs: 0 }
  images_ = [{ name: 'base', hash: '0123456789abcdef', createdAt: '2026-01-02T03:04:05.000Z', sizeBytes: 300 * 1024 ** 2, source: 'recipe', usedBy: ['sandbox db'] }]
  onStop: () => void = () => undefined

  async status(): Promise<DaemonStatus> {
    return {
      version: this.version, build: this.build, pid: process.pid, running: this.running, home: '/home/user/.kosa8', startedAt: '2026-01-02T03:04:05.000Z', listening: null,
      accelerator: { name: 'tcg', reason: 'there is no /dev/kvm' },
      budget: { totalBytes: 4 * 1024 ** 3, reservedBytes: 1024 ** 3, freeBytes: 3 * 1024 ** 3 },
      reservations: [{ id: 'v1', owner: `${RUN_ID}/a/1`, bytes: 1024 ** 3 }], waiting: [{ owner: `${RUN_ID}/b/1`, message: 'needs 310 MiB, 120 MiB free' }],
    }
  }

  stays = false
  async stay(): Promise<void> { this.stays = true }
  async listen() { return { url: 'http://127.0.0.1:1', tokenFile: '/home/user/.kosa8/token' } }
  async stop(): Promise<void> { this.onStop() }
  async images() { return this.images_ }
  async deleteOldImages() { return { removed: ['fedcba9876543210'], freedBytes: 300 * 1024 ** 2, kept: [{ hash: '0011223344556677', usedBy: ['sandbox db'] }] } }
  async deleteImage(name: string): Promise<void> {
    if (!this.images_.some((image) => image.name === name)) throw new Kosa8Error('IMAGE_UNKNOWN', `there is no image ${name}`)
    this.images_ = this.images_.filter((image) => image.name !== name)
  }
}

export class MemorySandboxes implements SandboxService {
  readonly all = new Map<string, { description: SandboxDescription; files: Map<string, Buffer>; snapshots: SnapshotDescription[]; lastNumber: number }>()
  /** Public keys of the sandboxes that need approvals. */
  readonly keys = new Map<string, string>()
  createdAt = '2026-01-02T03:04:05.000Z'
  readonly processes: MemoryProcess[] = []
  readonly fileModes: (number | undefined)[] = []
  /** A `create` that waits for its caller to go. */
  createWaits = false
  createWasAborted = false
  /** What a `create` waits for, with the sandbox `starting` at this step. */
  createHold: { step: string; until: Promise<void> } | null = null
  /** Time of the snapshots that are taken. */
  now: () => string = () => new Date().toISOString()
  /** What removing a sandbox fails with, by name. */
  readonly deleteFailures = new Map<string, Kosa8Error>()
  /** What a restore fails with, and what has become of the sandbox then. */
  restoreFailure: Kosa8Error | null = null
  stateAfterFailure: SandboxDescription['state'] = 'gone'
  readonly createStarted = createDeferred<void>()

  async create(request: CreateSandboxRequest, signal: AbortSignal): Promise<SandboxDescription> {
    if (this.createWaits) {
      this.createStarted.resolve()
      await once(signal, 'abort')
      this.createWasAborted = true
      throw new Kosa8Error('CANCELLED', 'the caller has gone')
    }
    if (this.all.has(request.name)) throw new Kosa8Error('SANDBOX_EXISTS', `there is a sandbox ${request.name}`, { hint: 'take another name', details: { name: request.name } })
    const { repository, approvals, diskMib = 8192, processesMax = 4096, ...shape } = request
    const description: SandboxDescription = {
      ...shape, blocked: [], diskMib, processesMax, state: 'running', step: null, createdAt: this.createdAt, approvals: approvals === undefined ? null : fingerprintOf(approvals),
      repository: repository ?? null, privateBytes: 40 * 1024 ** 2,
    }
    if (approvals !== undefined) this.keys.set(request.name, normalisePublicKey(approvals))
    const made = { description, files: new Map<string, Buffer>(), snapshots: [], lastNumber: 0 }
    if (this.createHold !== null) {
      this.all.set(request.name, { ...made, description: { ...description, state: 'starting', step: this.createHold.step } })
      await this.createHold.until
    }
    this.all.set(request.name, made)
    return description
  }

  async list() { return [...this.all.values()].map(({ description }) => description) }
  async get(name: string) { return this.find(name).description }
  async delete(name: string) {
    this.find(name)
    const failure = this.deleteFailures.get(name)
    if (failure !== undefined) throw failure
    this.all.delete(name)
    this.keys.delete(name)
  }

  async setEgress(name: string, egress: string) {
    this.find(name).description.egress = egress
    return this.find(name).description
  }

  async exec(name: string, request: ExecRequest) {
    this.find(name)
    if (request.argv[0] === 'missing') throw new Kosa8Error('GUEST_COMMAND_FAILED', 'missing: no such program', { hint: 'check the name' })
    const process = new MemoryProcess(request)
    this.processes.push(process)
    return process
  }

  async readFile(name: string, path: string) {
    const content = this.find(name).files.get(path)
    if (content === undefined) throw new Kosa8Error('GUEST_COMMAND_FAILED', `no file ${path}`)
    return Readable.from([content])
  }

  async writeFile(name: string, path: string, content: Readable, mode: number | undefined) {
    const chunks: Buffer[] = []
    for await (const chunk of content) chunks.push(chunk as Buffer)
    this.find(name).files.set(path, Buffer.concat(chunks))
    this.fileModes.push(mode)
  }

  async fork(name: string, names: string[]) {
    const { description } = this.find(name)
    return names.map((clone) => {
      if (this.all.has(clone)) return { name: clone, error: { code: 'SANDBOX_EXISTS', message: `there is a sandbox ${clone}` } }
      this.all.set(clone, { description: { ...description, name: clone }, files: new Map(), snapshots: [], lastNumber: 0 })
      return { name: clone, error: null }
    })
  }

  async snapshot(name: string, { id: wanted, label }: CreateSnapshotRequest) {
    const sandbox = this.find(name)
    const id = wanted ?? `${name}-ckpt-${sandbox.lastNumber += 1}`
    const snapshot = { id, sandbox: name, label: label ?? null, createdAt: this.now(), parent: sandbox.snapshots.at(-1)?.id ?? null, pauseMs: 12.5, sizeBytes: 64 * 1024 ** 2 }
    sandbox.snapshots.push(snapshot)
    return snapshot
  }

  async snapshots(name: string) { return this.find(name).snapshots }
  async deleteSnapshot(name: string, id: string) {
    const sandbox = this.find(name)
    if (!sandbox.snapshots.some((each) => each.id === id)) throw new Kosa8Error('CHECKPOINT_UNKNOWN', `${name} has no checkpoint ${id}`)
    sandbox.snapshots = sandbox.snapshots.filter((each) => each.id !== id)
  }

  async restore(name: string, id: string) {
    const snapshot = this.find(name).snapshots.find((each) => each.id === id)
    if (snapshot === undefined) throw new Kosa8Error('CHECKPOINT_UNKNOWN', `${name} has no checkpoint ${id}`)
    if (this.restoreFailure !== null) {
      this.find(name).description.state = this.stateAfterFailure
      throw this.restoreFailure
    }
    return { snapshot, restoreMs: 90 }
  }

  /** What the approval book asks. */
  async approvedSandbox(name: string) {
    return { createdAt: this.find(name).description.createdAt, approvals: this.keys.get(name) ?? null }
  }

  private find(name: string) {
    const found = this.all.get(name)
    if (found === undefined) throw new Kosa8Error('SANDBOX_UNKNOWN', `there is no sandbox ${name}`, { hint: 'see `kosa8 ls`' })
    return found
  }
}

type EventInput = RunEvent extends infer Event ? Event extends RunEvent ? Omit<Event, 'seq' | 'at'> : never : never

export class MemoryRuns implements RunService {
  readonly requests: RunRequest[] = []
  readonly cancellations: CancelRunRequest[] = []
  readonly removed: string[] = []
  readonly applied: ApplyRunRequest[] = []
  readonly eventRequests: number[] = []
  /** What happens once a run is started or cancelled. */
  onStart: (request: RunRequest) => void = () => undefined
  onCancel: (request: CancelRunRequest) => void = () => undefined
  document: RunDocument | null = null
  folder = '/nonexistent'
  private readonly log: RunEvent[] = []
  private readonly changed = new EventEmitter().setMaxListeners(0)

  push(event: EventInput): void {
    this.log.push({ seq: this.log.length, at: '2026-01-02T03:04:05.000Z', ...event })
    this.changed.emit('event')
  }

  /** Ends the run with a document. */
  finish(document: RunDocument): void {
    this.document = document
    this.push({ type: 'run-end', phase: document.state })
  }

  async start(request: RunRequest) {
    this.requests.push(request)
    queueMicrotask(() => this.onStart(request))
    return { id: RUN_ID }
  }

  async list() {
    return this.requests.map(({ repository, sandbox, approaches }) => ({
      id: RUN_ID, createdAt: '2026-01-02T03:04:05.000Z', phase: this.document?.state ?? 'running' as const, repository, sandbox,
      approaches: approaches.map(({ label }) => label), winner: this.document?.winner ?? null,
    }))
  }

  async get(id: string): Promise<RunStatus> {
    this.require(id)
    const trials = [{ label: 'a', repeat: 1, phase: 'strategy' as const, message: 'writing', state: null }]
    return { id, phase: this.document?.state ?? 'running', plan: null, trials, document: this.document }
  }

  async* events(_id: string, fromSeq: number, signal: AbortSignal): AsyncIterable<RunEvent> {
    this.eventRequests.push(fromSeq)
    for (let next = fromSeq; !signal.aborted;) {
      const event = this.log[next]
      if (event === undefined) {
        await once(this.changed, 'event', { signal }).catch(() => undefined)
        continue
      }
      next += 1
      yield event
      if (event.type === 'run-end') return
    }
  }

  async cancel(id: string, request: CancelRunRequest) {
    this.require(id)
    this.cancellations.push(request)
    this.onCancel(request)
  }

  async remove(id: string) { this.require(id); this.removed.push(id) }

  async apply(id: string, request: ApplyRunRequest) {
    this.require(id)
    this.applied.push(request)
    return { branch: request.branch ?? `kosa8/${request.approach}`, commit: 'c'.repeat(40), files: 1 }
  }

  async diff(id: string, a: string, b: string | null) {
    this.require(id)
    return Readable.from([Buffer.from(`diff ${a} ${b ?? 'base'}\n`)])
  }

  async directory(id: string) { this.require(id); return this.folder }

  private require(id: string) {
    if (id !== RUN_ID) throw new Kosa8Error('RUN_UNKNOWN', `there is no run ${id}`, { hint: 'see `kosa8 runs`' })
  }
}

export class MemoryReservations implements ReservationService {
  readonly held = new Set<string>()
  readonly released = new EventEmitter()
  /** Lines before the memory is granted; an error to throw instead. */
  waits: string[] = []
  refusal: Kosa8Error | null = null

  async* reserve(request: ReservationRequest, signal: AbortSignal): AsyncIterable<ReservationLine> {
    if (this.refusal !== null) throw this.refusal
    for (const message of this.waits) yield { type: 'waiting', message }
    yield* this.hold(`v-${request.trial}`, request.bytes ?? 1000, signal)
  }

  adopt(id: string, request: ReservationRequest, signal: AbortSignal) {
    return this.hold(id, request.bytes ?? 1000, signal)
  }

  async reportUsage(id: string, { peakPrivateBytes }: ReservationUsage) {
    if (!this.held.has(id)) throw new Kosa8Error('USAGE', `there is no reservation ${id}`)
    return { bytes: peakPrivateBytes }
  }

  private async* hold(id: string, bytes: number, signal: AbortSignal): AsyncIterable<ReservationLine> {
    this.held.add(id)
    try {
      yield { type: 'granted', id, bytes }
      if (!signal.aborted) await once(signal, 'abort')
    } finally {
      this.held.delete(id)
      this.released.emit('released', id)
    }
  }
}

/** Records of approvals without a disk. */
export class MemoryApprovalStore {
  readonly all = new Map<string, ApprovalRecord>()
  async read(id: string) { return this.all.get(id) ?? null }
  async write(id: string, record: ApprovalRecord) { this.all.set(id, record) }
  async remove(id: string) { this.all.delete(id) }
  async list() { return [...this.all.values()] }
}

/** One set of services in memory. */
export class MemoryServices implements Services {
  readonly daemon = new MemoryDaemon()
  readonly sandboxes = new MemorySandboxes()
  readonly runs = new MemoryRuns()
  readonly reservations = new MemoryReservations()
  readonly approvalRecords = new MemoryApprovalStore()
  /** Milliseconds the daemon's clock is ahead. */
  aheadMs = 0
  readonly approvals = new ApprovalBook({
    store: this.approvalRecords, clock: { ...systemClock, now: () => Date.now() + this.aheadMs }, onError: (message, error) => { throw new Error(message, { cause: error }) },
    sandbox: (name) => this.sandboxes.approvedSandbox(name), checkpoints: (name) => this.sandboxes.snapshots(name),
  })
}
