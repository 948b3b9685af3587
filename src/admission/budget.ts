/**
 * How much memory of this host may be promised.
 *
 * Pure; the numbers come from signals/. A control group's limit counts as the machine's size.
 */

/** One control group that bounds this process. */
export interface GroupMemory {
  limitBytes: number
  /** What it uses and cannot simply drop: usage without inactive file pages. */
  workingSetBytes: number
}

/** Measured now. */
export interface BudgetInputs {
  /** MemAvailable of the host. */
  memAvailableBytes: number
  /** Private memory of our own machines: already promised, so it counts as available to the ledger. */
  ownPrivateBytes: number
  /** This process's groups and their ancestors; those without a limit left out. */
  groups: GroupMemory[]
  /** Left for everything that is not ours. */
  reserveBytes: number
}

const MIB = 2 ** 20
const RESERVE_FRACTION = 0.1
const RESERVE_MIN_BYTES = 256 * MIB
const RESERVE_MAX_BYTES = 2048 * MIB

/** Bytes the ledger may promise in all, what our machines hold already included; never negative. */
export function planBudget(inputs: BudgetInputs): number {
  const rooms = [inputs.memAvailableBytes, ...inputs.groups.map((group) => group.limitBytes - group.workingSetBytes)]
  return Math.max(0, Math.floor(Math.min(...rooms) + inputs.ownPrivateBytes - inputs.reserveBytes))
}

/** What to leave for the rest of the system: a tenth of the machine, at least 256 MiB, at most 2 GiB. */
export function defaultReserveBytes(machineBytes: number): number {
  return Math.min(Math.max(machineBytes * RESERVE_FRACTION, RESERVE_MIN_BYTES), RESERVE_MAX_BYTES)
}
