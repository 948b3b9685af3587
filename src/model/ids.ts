/**
 * Branded identifiers: strings that cannot be mistaken for one another.
 *
 * Owns: their shapes and how composite ones are built. Names given by users (sandboxes, approaches)
 * are checked here because they become file names, git refs and queue keys.
 */
import { randomBytes } from 'node:crypto'
import { z } from 'zod'

type Brand<Name extends string> = string & { readonly __brand: Name }

export type RunId = Brand<'RunId'>
/** `<run>/<approach label>/<repeat>`. */
export type TrialId = Brand<'TrialId'>
export type SandboxName = Brand<'SandboxName'>
/** `<sandbox>-ckpt-<n>`. */
export type CheckpointId = Brand<'CheckpointId'>
/** One virtual machine process's identity; never reused. */
export type MachineId = Brand<'MachineId'>
export type ReservationId = Brand<'ReservationId'>

/** Names of sandboxes: lower-case letters, digits and single dashes, 1 to 40 characters. */
export const sandboxNameSchema = z.string()
  .regex(/^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$/, 'use 1 to 40 lower-case letters, digits and dashes')
  .transform((name) => name as SandboxName)

/** Names of approaches: they become file names and git refs. */
export const approachNameSchema = z.string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/, 'use 1 to 64 letters, digits, dashes and underscores')

/** The name no approach may have: it is the trial without a change. */
export const BASELINE_LABEL = 'baseline'

/** A new run id: sortable by time, with four random bytes, e.g. `r20261129-151200-1f3a9c02`. */
export function createRunId(nowMs: number): RunId {
  const stamp = new Date(nowMs).toISOString().replace(/[-:]/g, '').slice(0, 15).replace('T', '-')
  return `r${stamp}-${randomBytes(4).toString('hex')}` as RunId
}

/** A new machine id. */
export function createMachineId(): MachineId {
  return `m-${randomBytes(8).toString('hex')}` as MachineId
}

/** The id of one trial; `repeat` counts from 1. */
export function trialIdOf(run: RunId, label: string, repeat: number): TrialId {
  return `${run}/${label}/${repeat}` as TrialId
}
