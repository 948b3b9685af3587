/**
 * Words for counts, as people read them.
 */

/** `1 test`, `2 tests`. */
export function countOf(count: number, noun: string, plural = `${noun}s`): string {
  return `${count} ${count === 1 ? noun : plural}`
}
