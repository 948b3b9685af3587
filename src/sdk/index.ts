/** The public surface of `@kosa8/sdk`. Everything else is internal. */
export { Kosa8Client, type CreateSandboxOptions, type Kosa8ClientOptions } from './client.js'
export {
  SandboxHandle, type DeletedSandbox, type ExecOptions, type ExecResult, type ForkedSandbox, type ForkOptions,
} from './sandbox.js'
export {
  FileCheckpointStore, MAX_CHECKPOINTS_PER_SANDBOX, MemoryCheckpointStore, type CheckpointList, type CheckpointRecord,
  type CheckpointStore,
} from './checkpoint-store.js'
export {
  CheckpointsClient, type CheckpointOptions, type CheckpointResult, type RewindOptions, type RewindResult,
} from './checkpoints.js'
export { ApprovalsClient, type ApproveOptions, type WithApproval } from './approvals.js'
export type { SandboxProcess } from './exec.js'
export type { CreationOptions } from './creation-steps.js'
export { RunsClient } from './runs.js'
export { buildRunRequest, type ForkOptions as RunOptions, type ForkSource as RunSource } from './fork-request.js'
export { Kosa8Error, type ErrorRecord } from '../errors/kosa8-error.js'
export type { ErrorCode } from '../errors/codes.js'
export type { ApproachPlan, RunDocument, RunEvent, RunPhase, RunPlan, TestPlan, TrialResult, Verdict } from '../model/run.js'
export type { AppliedApproach, RunRequest, RunStatus, RunSummary, TrialStatus } from '../protocol/runs.js'
export type { ExecExit, ExecRequest, ImageDescription, RemovedImages, RestoredSandbox, SandboxDescription, SnapshotDescription } from '../protocol/sandboxes.js'
export type { ApprovalDescription } from '../protocol/approvals.js'
export type { DaemonStatus } from '../protocol/status.js'
