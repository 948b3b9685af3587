/**
 * The structure of a TAP document: levels of subtests, their plans, and which points are leaves.
 *
 * Owns: nesting and counting. Fed line by line by `tap.ts`, which owns the grammar.
 */
import type { ReportCollector } from './report-parts.js'
import { joinName } from './text.js'
import type { TapPoint } from './tap.js'
import type { TestStatus } from '../model/tests.js'

/** Deeper subtests than this are passed over. */
const DEPTH_MAX = 50

const DURATION = /^duration_ms: ['"]?(\d{1,12}(?:\.\d{1,12})?)['"]?$/

interface Leaf {
  path: string[]
  status: TestStatus
  durationMs: number | null
  message: string
}

interface Level {
  indent: number
  leaves: Leaf[]
  /** Leaves of a deeper level that has ended and waits for its parent's test point. */
  pending: Leaf[] | null
  planned: number | null
  points: number
  /** A parent whose subtests follow in braces. */
  braced: TapPoint | null
  /** The last point, for the YAML block after it; null for a parent. */
  last: Leaf | null
}

/** One or more TAP documents in a row, as a `make test` of several programs prints them. */
export class TapDocument {
  private levels: Level[] = [createLevel(0)]
  private announced = ''
  private bailedOut = false
  private sawAnything = false

  constructor(private readonly collector: ReportCollector) {}

  version(indent: number): void {
    if (indent === 0 && this.sawAnything) this.endDocument()
    if (indent === 0) this.sawAnything = true
  }

  plan(indent: number, count: number): void {
    const level = this.enter(indent)
    if (level === null) return
    if (indent === 0 && level.planned !== null && level.points >= level.planned) {
      this.endDocument()
      return this.plan(indent, count)
    }
    if (level.planned !== null) return this.collector.addFault('more than one plan')
    this.sawAnything = true
    level.planned = count
  }

  point(indent: number, point: TapPoint): void {
    const level = this.enter(indent)
    if (level === null) return
    this.sawAnything = true
    settleBraced(level)
    level.points += 1
    level.last = null
    if (point.opensBrace) {
      level.braced = point
      return
    }
    const subtests = level.pending
    level.pending = null
    if (subtests === null) level.last = addLeaf(level, point)
    else adopt(level, point, subtests)
  }

  /** The `}` after subtests in braces. */
  closeBrace(indent: number): void {
    const level = this.enter(indent)
    if (level !== null) settleBraced(level)
  }

  /** The YAML block after the last point. */
  describe(yaml: string[]): void {
    const leaf = this.levels.at(-1)?.last
    if (leaf === null || leaf === undefined) return
    const duration = yaml.map((line) => DURATION.exec(line.trimEnd())).find((match) => match !== null)
    if (duration !== undefined) leaf.durationMs = Number(duration[1])
    if (leaf.status === 'failed') leaf.message = [leaf.message, ...messageOf(yaml)].filter(Boolean).join('\n')
  }

  announce(name: string): void {
    this.announced = name
  }

  bailOut(reason: string): void {
    this.bailedOut = true
    this.sawAnything = true
    this.collector.addFault(reason === '' ? 'bail out' : `bail out: ${reason}`)
  }

  /** The text has ended. */
  end(): void {
    this.endDocument()
  }

  private endDocument(): void {
    const level = this.leaveTo(0)
    if (level === null) return
    settleBraced(level)
    if (level.pending !== null) {
      // Subtests whose parent never came: the program ended in the middle.
      for (const leaf of level.pending) level.leaves.push({ ...leaf, path: [this.announced, ...leaf.path] })
      this.collector.addFault('report cut off')
    }
    this.checkPlan(level)
    for (const leaf of level.leaves) {
      this.collector.addCase({ ...leaf, name: joinName(leaf.path) })
    }
    this.levels = [createLevel(0)]
  }

  private checkPlan(level: Level): void {
    if (this.bailedOut) return
    const { planned, points } = level
    if (planned === null) return this.collector.addFault('report cut off: no plan')
    const missing = planned - points
    if (missing > 0) this.collector.addFault(`report cut off: ${missing} of ${planned} planned tests are missing`)
    if (points > planned) this.collector.addFault(`${points} tests where ${planned} were planned`)
  }

  /** The level of a line: deeper ones are opened, and closed where the indentation ends. */
  private enter(indent: number): Level | null {
    const top = this.levels.at(-1)
    if (top === undefined) return null
    if (indent <= top.indent) return this.leaveTo(indent)
    if (indent - top.indent < 4 || this.levels.length >= DEPTH_MAX) return null
    const level = createLevel(indent)
    this.levels.push(level)
    return level
  }

  private leaveTo(indent: number): Level | null {
    let top = this.levels.at(-1)
    while (top !== undefined && top.indent > indent) {
      this.levels.pop()
      const parent = this.levels.at(-1)
      if (parent === undefined) return null
      if (top.planned !== null && top.points < top.planned) this.collector.addWarning('fewer subtests than planned')
      settleBraced(top)
      parent.pending ??= []
      for (const leaf of top.leaves) parent.pending.push(leaf)
      for (const leaf of top.pending ?? []) parent.pending.push(leaf)
      top = parent
    }
    return top?.indent === indent ? top : null
  }
}

function createLevel(indent: number): Level {
  return { indent, leaves: [], pending: null, planned: null, points: 0, braced: null, last: null }
}

function statusOf(point: TapPoint): TestStatus {
  if (point.directive === 'todo') return 'todo'
  if (!point.isOk) return 'failed'
  return point.directive === 'skip' ? 'skipped' : 'passed'
}

function addLeaf(level: Level, point: TapPoint): Leaf {
  const name = point.name === '' ? `test ${level.points}` : point.name
  const leaf: Leaf = { path: [name], status: statusOf(point), durationMs: null, message: point.reason }
  level.leaves.push(leaf)
  return leaf
}

/** A parent in braces gets what came since; where nothing did, the brace was only a part of its name. */
function settleBraced(level: Level): void {
  const parent = level.braced
  if (parent === null) return
  level.braced = null
  adopt(level, parent, level.pending ?? [])
  level.pending = null
}

/** Puts subtests below their parent; the parent is a test of its own only if it failed and none of them did. */
function adopt(level: Level, parent: TapPoint, subtests: Leaf[]): void {
  const name = parent.name === '' ? `test ${level.points}` : parent.name
  for (const leaf of subtests) {
    leaf.path.unshift(name)
    level.leaves.push(leaf)
  }
  const failedAlone = statusOf(parent) === 'failed' && !subtests.some((leaf) => leaf.status === 'failed')
  if (subtests.length === 0 || failedAlone) addLeaf(level, parent)
}

/** The lines of `error:` or `message:` in a YAML block, without reading it as YAML. */
function messageOf(yaml: string[]): string[] {
  const start = yaml.findIndex((line) => /^(error|message):/.test(line))
  if (start === -1) return []
  const first = (yaml[start] ?? '').replace(/^(error|message):\s*/, '')
    .replace(/^[|>][+-]?$/, '').replace(/^(['"])(.*)\1$/, '$2')
  const next = yaml.slice(start + 1).findIndex((line) => /^\S/.test(line))
  const rest = yaml.slice(start + 1, next === -1 ? undefined : start + 1 + next)
  return [first, ...rest.map((line) => line.trim())]
}
