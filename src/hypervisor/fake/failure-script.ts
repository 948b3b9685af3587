/**
 * Which step of a fake machine's life fails next.
 */
import { Kosa8Error } from '../../errors/kosa8-error.js'

/** Steps that can be made to fail. */
export type FakeStep = 'boot' | 'restore' | 'recover' | 'reap' | 'channel' | 'pause' | 'resume' | 'snapshot' | 'inspect' | 'destroy'

/** A queue of failures per step: each one is used up by the step that meets it. */
export class FailureScript {
  private readonly failures = new Map<FakeStep, Error[]>()

  /** Makes the next not yet scripted `step` fail with `error`. */
  failNext(step: FakeStep, error: Error = new Kosa8Error('MACHINE_PROTOCOL', `${step} was told to fail`)): void {
    this.failures.set(step, [...(this.failures.get(step) ?? []), error])
  }

  /** Throws what was scripted for `step`, if anything. */
  meet(step: FakeStep): void {
    const error = this.failures.get(step)?.shift()
    if (error !== undefined) throw error
  }
}
