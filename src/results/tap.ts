/**
 * The Test Anything Protocol, versions 13 and 14, with subtests by indentation and by braces.
 *
 * Owns: the grammar of lines and how subtests become names. Leaves count; a parent counts only when it failed
 * although none of its subtests did. YAML blocks never count. Own parser rather than a package: input is hostile,
 * so it is one pass over bounded lines with a bounded stack.
 */
import { TapDocument } from './tap-document.js'
import { ReportCollector, type ReportParts } from './report-parts.js'

const VERSION = /^TAP version 1[34]\s*$/
const PLAN = /^1\.\.(\d{1,9})\s*(?:#\s*(.*))?$/
const POINT = /^(not )?ok\b(?:\s+(\d+)(?=\s|$))?(.*)$/
const BAIL_OUT = /^Bail out!\s*(.*)$/i
/** A longer line is cut; nothing a runner means to say needs more. */
const LINE_LENGTH_MAX = 10_000
const YAML_LINES_MAX = 500

/** True when the text is TAP beyond doubt: a version line, or a plan with test points or none planned. */
export function isTap(text: string): boolean {
  if (/^TAP version 1[34][ \t]*\r?$/m.test(text)) return true
  return /^1\.\.0\b/m.test(text) || (/^1\.\.\d+[ \t]*(#.*)?\r?$/m.test(text) && /^(not )?ok\b/m.test(text))
}

/** Reads TAP; lines that are no TAP are passed over, as the protocol asks. Never throws. */
export function parseTap(text: string): ReportParts {
  const collector = new ReportCollector()
  const document = new TapDocument(collector)
  const lines = new LineReader(text)
  for (let line = lines.next(); line !== null; line = lines.next()) {
    const indent = line.length - line.trimStart().length
    const point = readLine(document, indent, line.slice(indent))
    if (point) readYaml(lines, indent, (yaml) => document.describe(yaml))
  }
  document.end()
  return collector.parts
}

/** Hands one line to the document; true when it was a test point, after which a YAML block may come. */
function readLine(document: TapDocument, indent: number, line: string): boolean {
  if (VERSION.test(line)) document.version(indent)
  const plan = PLAN.exec(line)
  if (plan !== null) document.plan(indent, Number(plan[1]))
  const bailOut = BAIL_OUT.exec(line)
  if (bailOut !== null) document.bailOut(bailOut[1] ?? '')
  const subtest = /^# Subtest(?:: (.*))?$/.exec(line)
  if (subtest !== null) document.announce(subtest[1] ?? '')
  if (line === '}') document.closeBrace(indent)
  const point = POINT.exec(line)
  if (point === null) return false
  document.point(indent, readPoint(point[1] === undefined, point[3] ?? ''))
  return true
}

/** One test point, its directive taken apart. */
export interface TapPoint {
  isOk: boolean
  name: string
  directive: 'todo' | 'skip' | null
  /** Text after the directive. */
  reason: string
  /** Its subtests follow in braces. */
  opensBrace: boolean
}

/** A directive needs white space before its `#`; `\#` is part of the name. */
function readPoint(isOk: boolean, rest: string): TapPoint {
  const directive = /(?:^|\s)#\s*(todo|skip)\S*(?:\s+(.*))?$/i.exec(rest)
  const beforeDirective = directive === null ? rest : rest.slice(0, directive.index)
  const opensBrace = /\s\{\s*$/.test(rest)
  const name = beforeDirective.replace(/\s\{\s*$/, '').trim().replace(/^- /, '').replace(/^-$/, '')
  return {
    isOk,
    name: name.replace(/\\([#\\])/g, '$1').trim(),
    directive: directive === null ? null : directive[1]?.toLowerCase() as 'todo' | 'skip',
    reason: (directive?.[2] ?? '').replace(/\{\s*$/, '').trim(),
    opensBrace,
  }
}

/** Takes the YAML block after a test point, if there is one, off the lines. */
function readYaml(lines: LineReader, indent: number, describe: (yaml: string[]) => void): void {
  const start = lines.peek()
  if (start === null || !/^\s+---\s*$/.test(start)) return
  const yamlIndent = start.length - start.trimStart().length
  if (yamlIndent <= indent) return
  lines.next()
  const yaml: string[] = []
  for (let line = lines.peek(); line !== null; line = lines.peek()) {
    const isInside = line.trim() === '' || line.length - line.trimStart().length >= yamlIndent
    // A block that is never closed ends where the indentation does, so that it cannot swallow the rest.
    if (!isInside) break
    lines.next()
    if (line.trim() === '...' && line.startsWith('...', yamlIndent)) break
    if (yaml.length < YAML_LINES_MAX) yaml.push(line.slice(yamlIndent))
  }
  describe(yaml)
}

/** Lines of a text without splitting it all at once. */
class LineReader {
  private position = 0
  private ahead: string | null = null

  constructor(private readonly text: string) {}

  peek(): string | null {
    this.ahead ??= this.read()
    return this.ahead
  }

  next(): string | null {
    const line = this.peek()
    this.ahead = null
    return line
  }

  private read(): string | null {
    if (this.position >= this.text.length) return null
    const end = this.text.indexOf('\n', this.position)
    const stop = end === -1 ? this.text.length : end
    const line = this.text.slice(this.position, Math.min(stop, this.position + LINE_LENGTH_MAX))
    this.position = stop + 1
    return line.endsWith('\r') ? line.slice(0, -1) : line
  }
}
