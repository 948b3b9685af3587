/**
 * Set-up and tear-down as pairs: what was registered last is undone first, once, whatever happens.
 */

/** A stack of undo steps. Errors of single steps are collected, never swallowed. */
export class CleanupStack {
  private steps: { title: string; undo: () => unknown }[] = []

  /** Registers the undo of a step; call it before the step starts to change anything. */
  defer(title: string, undo: () => unknown): void {
    this.steps.push({ title, undo })
  }

  /** Forgets every registered step: what was set up is now somebody else's. */
  release(): void {
    this.steps = []
  }

  /**
   * Undoes everything in reverse order.
   * @throws AggregateError with the error of each step that failed, after all steps ran.
   */
  async run(): Promise<void> {
    const failures: Error[] = []
    for (let step = this.steps.pop(); step !== undefined; step = this.steps.pop()) {
      try {
        await step.undo()
      } catch (error) {
        failures.push(new Error(`${step.title}: ${error instanceof Error ? error.message : String(error)}`, { cause: error }))
      }
    }
    if (failures.length > 0) {
      throw new AggregateError(failures, `clean-up failed: ${failures.map((f) => f.message).join('; ')}`)
    }
  }
}
