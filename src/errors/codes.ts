/**
 * The one table of error codes: every failure a user or a program can meet has an entry here.
 *
 * Owns: the code names and the exit status each one leads to. Does not own: wording for a
 * particular place, which the thrower passes. Used by every layer.
 */

/** Exit status by kind: 2 wrong use or configuration, 3 our infrastructure, 130 interrupted. */
export const ERROR_CODES = {
  // Wrong use or configuration: the user can mend it.
  USAGE: 2,
  CONFIG_INVALID: 2,
  APPROACH_UNKNOWN: 2,
  APPROACH_INVALID: 2,
  REPOSITORY_INVALID: 2,
  REPOSITORY_DIRTY: 2,
  APPLY_CONFLICT: 2,
  SANDBOX_UNKNOWN: 2,
  SANDBOX_EXISTS: 2,
  SANDBOX_WITHOUT_REPOSITORY: 2,
  EGRESS_FIXED: 2,
  CHECKPOINT_UNKNOWN: 2,
  APPROVAL_REQUIRED: 2,
  APPROVAL_UNKNOWN: 2,
  APPROVAL_DENIED: 2,
  APPROVAL_EXPIRED: 2,
  APPROVAL_USED: 2,
  APPROVAL_MISMATCH: 2,
  APPROVAL_WRONG_KEY: 2,
  APPROVAL_TAMPERED: 2,
  UNAUTHORISED: 2,
  LOCAL_ONLY: 2,
  IMAGE_UNKNOWN: 2,
  IMAGE_IN_USE: 2,
  IMAGE_ARCHIVE_INVALID: 2,
  IMAGE_UNSUITABLE: 2,
  RUN_UNKNOWN: 2,
  RUN_ACTIVE: 2,
  SETUP_COMMAND_FAILED: 2,
  // The machine, a program or a file of ours let us down.
  PROGRAM_MISSING: 3,
  DISK_FULL: 3,
  IMAGE_BUILD_FAILED: 3,
  MACHINE_START_FAILED: 3,
  MACHINE_GONE: 3,
  MACHINE_PROTOCOL: 3,
  GUEST_UNREACHABLE: 3,
  GUEST_PROTOCOL: 3,
  GUEST_COMMAND_FAILED: 3,
  IDENTITY_NOT_REPAIRED: 3,
  CHECKPOINT_CORRUPT: 3,
  CHECKPOINT_INCOMPATIBLE: 3,
  CHECKPOINT_FAILED: 3,
  EVIDENCE_REFUSED: 3,
  LIMIT_EXCEEDED: 3,
  TIMED_OUT: 3,
  MEMORY_INSUFFICIENT: 3,
  QUEUE_UNREACHABLE: 3,
  DAEMON_UNREACHABLE: 3,
  DAEMON_VERSION: 3,
  STORE_CORRUPT: 3,
  PREEMPTED: 3,
  INTERNAL: 3,
  // Somebody or something asked us to stop.
  CANCELLED: 130,
  INTERRUPTED: 130,
} as const

/** A stable, documented name of one kind of failure. */
export type ErrorCode = keyof typeof ERROR_CODES
