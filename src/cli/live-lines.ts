/** A few lines of standard error that are drawn anew each time, for progress on a terminal. */
import { fitWidth } from '../report/table.js'
import { makeVisible } from '../report/visible.js'
import type { CliHost } from './host.js'

/** Lines of the moment. What else is written while they are drawn is drawn over. */
export class LiveLines {
  private drawnLines = 0

  constructor(private readonly host: CliHost) {}

  /** Shows these in place of the last ones, each cut to the width of the terminal. */
  draw(lines: readonly string[]): void {
    const { columns } = this.host.terminalSize()
    this.erase()
    this.host.stderr.write(lines.map((line) => `${fitWidth(makeVisible(line), columns - 1)}\n`).join(''))
    this.drawnLines = lines.length
  }

  /** Safe to call twice. */
  erase(): void {
    if (this.drawnLines > 0) this.host.stderr.write(`\u001b[${this.drawnLines}A\u001b[J`)
    this.drawnLines = 0
  }
}

/** Whole seconds since an instant of `performance.now()`. */
export function tellSeconds(since: number): string {
  return `${Math.round((performance.now() - since) / 1000)} s`
}
