/**
 * What a guest tried to reach and was not to.
 *
 * Owns: the list and its bounds: a guest that tries everything fills neither memory nor logs.
 */
import { BLOCKED_TARGETS_MAX, type BlockedAttempt } from '../model/egress.js'

/** Targets that are told of as they first appear. */
const TOLD_MAX = 100

/** Attempts on each target of one sandbox. */
export class BlockedAttempts {
  /** In the order of the last attempt. */
  private readonly all = new Map<string, BlockedAttempt>()
  private toldCount = 0

  /** @param onFirst called for a target's first attempt, a bounded number of times */
  constructor(private readonly onFirst: (attempt: BlockedAttempt) => void = () => undefined) {}

  note(target: string, reason: string): void {
    const before = this.all.get(target)
    const attempt = { target, count: (before?.count ?? 0) + 1, lastAt: new Date().toISOString(), reason }
    this.all.delete(target)
    this.all.set(target, attempt)
    if (before !== undefined) return
    if (this.all.size > BLOCKED_TARGETS_MAX) this.all.delete(this.all.keys().next().value as string)
    this.toldCount += 1
    if (this.toldCount <= TOLD_MAX) this.onFirst(attempt)
  }

  /** The latest first. */
  list(): BlockedAttempt[] {
    return [...this.all.values()].reverse()
  }
}
