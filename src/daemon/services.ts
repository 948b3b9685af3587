/**
 * What the daemon can do, as the HTTP server calls it.
 *
 * Owns: interfaces only. `daemon/server` turns requests into these calls; the services behind it implement
 * them; tests of the server, the SDK and the CLI implement them in memory. Every failure is a Kosa8Error.
 * A `signal` is aborted when the caller's connection has gone: stop and undo what is not finished.
 */
import type { Readable } from 'node:stream'
import type { GuestProcess } from '../guest/session.js'
import type { ApprovalDescription, ApproveRequest } from '../protocol/approvals.js'
import type { GuardedAct } from '../protocol/guarded-calls.js'
import type { ReservationLine, ReservationRequest, ReservationUsage } from '../protocol/reservations.js'
import type { RunEvent } from '../model/run.js'
import type {
  AppliedApproach, ApplyRunRequest, CancelRunRequest, RunRequest, RunStatus, RunSummary,
} from '../protocol/runs.js'
import type {
  CreateSandboxRequest, CreateSnapshotRequest, ExecRequest, ForkedSandboxEntry, ImageDescription, RemovedImages, RestoredSandbox, SandboxDescription,
  SnapshotDescription,
} from '../protocol/sandboxes.js'
import type { DaemonStatus, ListenRequest, Listening } from '../protocol/status.js'

/** The daemon itself. */
export interface DaemonService {
  status(): Promise<DaemonStatus>
  /** From now on it does not end by itself when it has nothing to look after. */
  stay(): Promise<void>
  /** Listens on TCP too, until it ends. @throws CONFIG_INVALID, also when it listens somewhere else already. */
  listen(request: ListenRequest): Promise<Listening>
  /** Begins to stop and returns at once; machines go on running and are found again. */
  stop(): Promise<void>
  images(): Promise<ImageDescription[]>
  /** Removes every build of that image. @throws IMAGE_UNKNOWN, IMAGE_IN_USE. */
  deleteImage(name: string): Promise<void>
  /** Removes its versions that are neither the newest nor in use. @throws IMAGE_UNKNOWN. */
  deleteOldImages(name: string): Promise<RemovedImages>
}

/** Live sandboxes and their snapshots. Unknown names: SANDBOX_UNKNOWN, CHECKPOINT_UNKNOWN. */
export interface SandboxService {
  /** @throws SANDBOX_EXISTS, IMAGE_UNKNOWN, MEMORY_INSUFFICIENT, REPOSITORY_INVALID, … */
  create(request: CreateSandboxRequest, signal: AbortSignal): Promise<SandboxDescription>
  list(): Promise<SandboxDescription[]>
  get(name: string): Promise<SandboxDescription>
  /** Destroys the sandbox and its snapshots. */
  delete(name: string): Promise<void>
  /** Starts a command; the server closes the process when the caller has gone. */
  exec(name: string, request: ExecRequest): Promise<GuestProcess>
  /** `path` is absolute or relative to the workspace; so is it in `writeFile`. */
  readFile(name: string, path: string): Promise<Readable>
  /** `mode` are permission bits; 0o644 by default. */
  writeFile(name: string, path: string, content: Readable, mode: number | undefined, signal: AbortSignal): Promise<void>
  /** Changes the rule of a sandbox, running or not. @throws EGRESS_FIXED from or to `allow`. */
  setEgress(name: string, egress: string): Promise<SandboxDescription>
  /** Makes named clones of a running sandbox, which goes on; one entry per name, in their order. */
  fork(name: string, names: string[]): Promise<ForkedSandboxEntry[]>
  snapshot(name: string, request: CreateSnapshotRequest): Promise<SnapshotDescription>
  /** Oldest first. */
  snapshots(name: string): Promise<SnapshotDescription[]>
  deleteSnapshot(name: string, id: string): Promise<void>
  restore(name: string, snapshot: string): Promise<RestoredSandbox>
}

/** Runs, from the request to the result document. Unknown ids: RUN_UNKNOWN. */
export interface RunService {
  /** Checks the request, notes it durably and returns the run's id; preparing goes on behind it. */
  start(request: RunRequest): Promise<{ id: string }>
  /** Newest first. */
  list(): Promise<RunSummary[]>
  get(id: string): Promise<RunStatus>
  /** Replays from `fromSeq`, then follows; ends after `run-end` or when the signal is aborted. */
  events(id: string, fromSeq: number, signal: AbortSignal): AsyncIterable<RunEvent>
  /** Asks the run to end; finished results are kept. Does nothing to a run that has ended. */
  cancel(id: string, request: CancelRunRequest): Promise<void>
  /** Removes the run's folder and refs. @throws RUN_ACTIVE while it has not ended. */
  remove(id: string): Promise<void>
  /** @throws APPLY_CONFLICT, REPOSITORY_DIRTY, APPROACH_UNKNOWN. */
  apply(id: string, request: ApplyRunRequest): Promise<AppliedApproach>
  /** Patch text from `a` to `b`, or from the base to `a` when `b` is null. Selectors: `label` or `label/repeat`. */
  diff(id: string, a: string, b: string | null): Promise<Readable>
  /** Absolute path of the run's folder; the server serves files from nowhere else. */
  directory(id: string): Promise<string>
}

/** Memory for trials. The lines end when the service has no more to say; an abort of `signal` releases. */
export interface ReservationService {
  reserve(request: ReservationRequest, signal: AbortSignal): AsyncIterable<ReservationLine>
  /** Takes over a reservation that outlived its connection, e.g. after a restart of the daemon. */
  adopt(id: string, request: ReservationRequest, signal: AbortSignal): AsyncIterable<ReservationLine>
  /** @returns the size of the reservation from now on, in bytes. */
  reportUsage(id: string, usage: ReservationUsage): Promise<{ bytes: number }>
}

/** Approvals of guarded calls. Unknown ids: APPROVAL_UNKNOWN. */
export interface ApprovalService {
  /**
   * Performs a guarded act, if its sandbox needs no approval or this one allows it; the use is noted durably before.
   * @param approval null: none was given
   * @throws APPROVAL_REQUIRED naming the request that waits now; APPROVAL_… for one that does not allow it.
   */
  guard<T>(act: GuardedAct, approval: string | null, perform: () => Promise<T>): Promise<T>
  /** Those that wait or may be used, oldest first. */
  list(): Promise<ApprovalDescription[]>
  get(id: string): Promise<ApprovalDescription>
  /** @throws APPROVAL_WRONG_KEY, APPROVAL_TAMPERED, APPROVAL_EXPIRED, APPROVAL_USED, APPROVAL_DENIED, USAGE for a time out of bounds. */
  approve(id: string, request: ApproveRequest): Promise<ApprovalDescription>
  /** Refuses a request, or takes back an approval that was not used. */
  deny(id: string): Promise<ApprovalDescription>
}

/** Everything the server serves. */
export interface Services {
  daemon: DaemonService
  sandboxes: SandboxService
  runs: RunService
  reservations: ReservationService
  approvals: ApprovalService
}
