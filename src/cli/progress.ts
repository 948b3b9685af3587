/**
 * Progress of a run on standard error: on a terminal a block of one line per trial that is drawn anew, else
 * plain lines.
 */
import type { RunEvent } from '../model/run.js'
import { renderProgressLine } from '../report/progress-line.js'
import type { CliHost } from './host.js'
import { LiveLines, tellSeconds } from './live-lines.js'

/** Shows events as they come. */
export interface Progress {
  show(event: RunEvent): void
  /** Removes what is only of the moment. Safe to call twice. */
  end(): void
}

/** The kind of progress that fits where standard error goes. */
export function createProgress(host: CliHost): Progress {
  return host.terminals.stderr && !host.settings.isCi ? new ProgressBlock(host) : {
    show: (event) => {
      const line = renderProgressLine(event)
      if (line !== null) host.stderr.write(`${line}\n`)
    },
    end: () => undefined,
  }
}

/** Time between two drawings that only move the clock, milliseconds. */
const TICK_MS = 1000
/** Lines of the terminal left for what is not the block. */
const ROWS_LEFT_FREE = 4

interface TrialLine {
  name: string
  phase: string
  message: string
  since: number
}

/** One line per trial: phase, time in it, what it waits for. */
class ProgressBlock implements Progress {
  private readonly trials = new Map<string, TrialLine>()
  private headline = ''
  private readonly lines: LiveLines
  private isDirty = false
  private readonly timer: NodeJS.Timeout
  private readonly startedAt = performance.now()

  constructor(private readonly host: CliHost) {
    this.lines = new LiveLines(host)
    this.timer = setInterval(() => this.draw(), TICK_MS)
    this.timer.unref()
  }

  show(event: RunEvent): void {
    if (event.type === 'trial-output') return
    if (event.type === 'run-phase') this.headline = event.message === '' ? event.phase : `${event.phase}: ${event.message}`
    if (event.type === 'trial-phase') this.update(event, event.phase, event.message)
    if (event.type === 'trial-end') this.update(event, event.state, event.summary)
    this.drawSoon()
  }

  end(): void {
    clearInterval(this.timer)
    this.lines.erase()
    this.isDirty = false
  }

  private update({ label, repeat }: { label: string; repeat: number }, phase: string, message: string): void {
    const name = repeat === 1 ? label : `${label} #${repeat}`
    const before = this.trials.get(name)
    const since = before?.phase === phase ? before.since : performance.now()
    this.trials.set(name, { name, phase, message, since })
  }

  /** Many events at once are one drawing. */
  private drawSoon(): void {
    if (this.isDirty) return
    this.isDirty = true
    setImmediate(() => { if (this.isDirty) this.draw() })
  }

  private draw(): void {
    this.isDirty = false
    const room = Math.max(1, this.host.terminalSize().rows - ROWS_LEFT_FREE)
    const all = [...this.trials.values()]
    const shown = all.length <= room ? all : byInterest(all).slice(0, room - 1)
    const width = Math.max(0, ...shown.map(({ name }) => name.length))
    const lines = [`${this.headline}  (${tellSeconds(this.startedAt)})`, ...shown.map((trial) => tellTrial(trial, width))]
    if (shown.length < all.length) lines.push(`  … and ${all.length - shown.length} more`)
    this.lines.draw(lines)
  }
}

function tellTrial({ name, phase, message, since }: TrialLine, width: number): string {
  const isOver = ENDED.has(phase)
  return `  ${name.padEnd(width)}  ${phase.padEnd(10)} ${isOver ? '' : tellSeconds(since)}  ${message}`.trimEnd()
}

const ENDED = new Set(['done', 'completed', 'failed', 'timedOut', 'cancelled', 'error'])

/** Trials that move come first when there is no room for all. */
function byInterest(trials: TrialLine[]): TrialLine[] {
  const rank = ({ phase }: TrialLine): number => (ENDED.has(phase) ? 2 : phase === 'queued' ? 1 : 0)
  return [...trials].sort((a, b) => rank(a) - rank(b))
}
