/**
 * Time as a dependency: policies get a clock passed in, so that tests can drive it.
 */

/** A source of wall-clock and monotonic time. */
export interface Clock {
  /** Wall clock, milliseconds since the epoch. */
  now(): number
  /** Monotonic time in milliseconds, for durations. */
  monotonic(): number
}

/** The machine's own clock. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
}
