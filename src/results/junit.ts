/**
 * JUnit XML in its dialects, read as a stream of elements.
 *
 * Owns: which elements are tests and what became of them. Entities are never expanded and nothing outside the
 * text is read. A report that declares entities is refused; an ill-formed one is repaired and read again; one
 * that is cut off keeps its complete tests. Totals in attributes are compared, never added.
 */
import { SaxesParser } from 'saxes'
import { parseSeconds } from './duration.js'
import { JunitCases, type JunitAttributes } from './junit-cases.js'
import { ReportCollector, type ReportParts } from './report-parts.js'
import { repairXml } from './xml-repair.js'

/** Deeper nesting than this is no report. */
const DEPTH_MAX = 200
/** Longest text kept of one element while it is read. */
const TEXT_LENGTH_MAX = 20_000
/** A repaired report may still be odd in this many places; beyond, what follows is given up. */
const ODDITIES_MAX = 1000

/** What reading ended with, beside the tests. */
type Reading = 'complete' | 'cutOff' | 'illFormed' | 'tooDeep' | 'refused'

/** True when the text looks like a JUnit report, whole or cut off. */
export function isJunit(text: string): boolean {
  const head = text.slice(0, 65_536)
  return /^\s*<(\?xml|!DOCTYPE|!--|testsuites?[\s/>])/i.test(head)
}

/** Reads a JUnit report. Never throws on what the guest wrote. */
export function parseJunit(text: string): ReportParts {
  if (declaresEntities(text)) {
    const refused = new ReportCollector()
    refused.addFault('report refused: it declares entities')
    return refused.parts
  }
  const strict = readXml(text, true)
  if (strict.reading === 'complete' || strict.reading === 'tooDeep') return finish(strict)
  const repaired = readXml(repairXml(text), false)
  // A stray ampersand can swallow the rest and look like a cut; a real cut reads no better after a repair.
  const isNoBetter = repaired.reading !== 'complete'
    && repaired.collector.parts.cases.length <= strict.collector.parts.cases.length
  if (strict.reading === 'cutOff' && isNoBetter) return finish(strict)
  repaired.collector.addWarning('the report was not well-formed and was repaired')
  return finish(repaired)
}

function declaresEntities(text: string): boolean {
  const doctype = text.search(/<!DOCTYPE/i)
  if (doctype === -1) return false
  const root = text.search(/<[A-Za-z_]/)
  // Only a doctype before the root is one; the same letters inside a test's output are just text.
  return (root === -1 || doctype < root) && /<!ENTITY/i.test(text.slice(doctype, root === -1 ? undefined : root))
}

function finish({ collector, reading }: { collector: ReportCollector; reading: Reading }): ReportParts {
  if (reading === 'cutOff' || reading === 'illFormed') collector.addFault('report cut off')
  if (reading === 'tooDeep') collector.addFault(`report refused: nested deeper than ${DEPTH_MAX}`)
  return collector.parts
}

class StopReading extends Error {
  constructor(readonly reading: Reading) {
    super(reading)
  }
}

function readXml(text: string, isStrict: boolean): { collector: ReportCollector; reading: Reading } {
  const collector = new ReportCollector()
  const cases = new JunitCases(collector, parseSeconds)
  const reading = new XmlReading(cases, isStrict).read(text)
  cases.end()
  return { collector, reading }
}

/** One pass over the text: keeps the stack of open elements and hands them to {@link JunitCases}. */
class XmlReading {
  private readonly open: string[] = []
  private text = ''
  private sawRoot = false
  private isEnding = false
  private oddities = 0

  constructor(private readonly cases: JunitCases, private readonly isStrict: boolean) {}

  read(text: string): Reading {
    const parser = new SaxesParser({ xmlns: false, position: false })
    parser.on('error', () => this.onOddity())
    parser.on('opentag', (tag) => this.onOpen(tag.name, tag.attributes))
    parser.on('closetag', (tag) => this.onClose(tag.name))
    parser.on('text', (piece) => this.onText(piece))
    parser.on('cdata', (piece) => this.onText(piece))
    try {
      parser.write(text)
      this.isEnding = true
      parser.close()
    } catch (error) {
      if (error instanceof StopReading) return error.reading
      throw error
    }
    return this.sawRoot && this.open.length === 0 ? 'complete' : 'cutOff'
  }

  private onOddity(): void {
    // What is wrong at the end only is a report that stops too early, not one that is ill-formed.
    if (this.isEnding) return
    if (this.isStrict) throw new StopReading('illFormed')
    this.oddities += 1
    if (this.oddities > ODDITIES_MAX) throw new StopReading('cutOff')
  }

  private onOpen(name: string, attributes: JunitAttributes): void {
    this.sawRoot = true
    this.open.push(name)
    if (this.open.length > DEPTH_MAX) throw new StopReading('tooDeep')
    this.text = ''
    this.cases.open(name, attributes)
  }

  private onClose(name: string): void {
    for (let last = this.open.pop(); last !== undefined; last = this.open.pop()) {
      if (last === name) break
      this.cases.abandon(last)
    }
    this.cases.close(name, this.text)
    this.text = ''
  }

  private onText(piece: string): void {
    if (this.text.length < TEXT_LENGTH_MAX) this.text += piece.slice(0, TEXT_LENGTH_MAX)
  }
}
