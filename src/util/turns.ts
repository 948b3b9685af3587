/**
 * Work that must be done one after the other, per name; different names do not wait for each other.
 */

/** A queue per name. */
export class Turns {
  private readonly last = new Map<string, Promise<unknown>>()

  /** Runs `work` once everything begun earlier under this name has ended, well or not. */
  async take<T>(name: string, work: () => Promise<T>): Promise<T> {
    const before = this.last.get(name) ?? Promise.resolve()
    const turn = before.then(work)
    const settled = turn.catch(() => undefined)
    this.last.set(name, settled)
    try {
      return await turn
    } finally {
      if (this.last.get(name) === settled) this.last.delete(name)
    }
  }
}
