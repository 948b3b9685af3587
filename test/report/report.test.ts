import { SaxesParser } from 'saxes'
import { describe, expect, test } from 'vitest'
import type { RunDocument } from '../../src/model/run.js'
import { isReportFormat, renderReport, reportFormats } from '../../src/report/registry.js'
import { readTestRun } from '../../src/results/read-test-run.js'
import { baseline, diff, documentOf, plan, record, testRun, threeApproaches } from '../compare/records.js'

/** Everything a guest can write into a document that terminals, browsers and Markdown readers act on. */
const NASTY = [
  '\u001b[31mred\u001b[0m', '\u001b]0;title\u0007', 'a\r\nb', '\u009b1m', '\u202eevil', '\u2066x', 'zero\u200bwidth', '\ud800',
  '<script>alert(1)</script>', '"><img src=x onerror=alert(1)>', '[click](javascript:alert(1))', '![x](https://tracker.example/p.png)',
  '@everyone', '| cell | break |', '`code`', '``` \n# heading', '</details>', '&amp;', ']]>', '* list', 'https://phish.example', '\u0000',
]

/** A document in which every text that can come from the guest is `text`. */
function documentSaying(text: string): RunDocument {
  const failing = testRun({ [text]: 'failed', [`${text} 2`]: 'passed' }, {
    warnings: [text], reason: text, didNotRun: [{ name: text, message: text }], complete: false,
  })
  return documentOf(plan(['x']), [baseline(testRun({ [text]: 'passed', gone: 'failed' }))], [
    record('x', failing, {
      state: 'failed', error: { code: 'INTERNAL', message: text }, notes: [text, `stopped: ${text}`], tampered: [text],
      ownTests: testRun({ a: 'passed' }),
      diff: diff([text, `dir/${text}`], {
        notes: [text], conflicts: [text], omitted: [{ path: text, bytes: 5, reason: text }],
        changes: [{ status: 'R', path: text, oldPath: `old ${text}`, oldMode: null, newMode: null, insertions: null, deletions: null }],
      }),
    }),
  ])
}

/** The characters no format may let through, line ends aside. */
const FORBIDDEN = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\ud800-\udfff]/u

describe('the example of three approaches', () => {
  test('as text', () => {
    expect(renderReport('text', threeApproaches(), { columns: 110 })).toMatchSnapshot()
  })

  test('as Markdown', () => {
    expect(renderReport('md', threeApproaches())).toMatchSnapshot()
  })

  test('as JSON it is the document itself', () => {
    expect(JSON.parse(renderReport('json', threeApproaches()))).toEqual(threeApproaches())
  })

  test('as CTRF the counts are those of the entries', () => {
    const { results } = JSON.parse(renderReport('ctrf', threeApproaches())) as {
      results: { summary: Record<string, number>; tests: { status: string; suite: string[] }[] }
    }
    expect(results.summary).toMatchObject({ tests: 7, passed: 4, failed: 3, skipped: 0 })
    expect(results.tests).toHaveLength(7)
    expect(results.tests[0]?.suite).toEqual(['fix'])
  })

  test('as JUnit it can be read back, one failure per broken, missing or still failing test and per worse verdict', () => {
    const content = new TextEncoder().encode(renderReport('junit', threeApproaches()))
    const run = readTestRun({ files: [{ path: 'r', content }], stdout: new Uint8Array(), exitCode: 0, signal: null, timedOut: false, staleReports: [], workspace: '/' })
    expect(run.warnings).toEqual([])
    expect(run.cases.filter((each) => each.status === 'failed').map((each) => each.name)).toEqual([
      'weaken › cart › totals', 'rewrite › verdict', 'rewrite › cart › adds',
    ])
  })
})

describe('text from the guest', () => {
  test.each(NASTY)('%j: no format lets a control or direction character through', (text) => {
    const document = documentSaying(text)
    for (const format of reportFormats) {
      expect(FORBIDDEN.exec(renderReport(format, document, { patches: { 'trials/x/1/patch': '' } })), format).toBeNull()
    }
  })

  test.each(NASTY)('%j: HTML has no element, attribute or entity of it', (text) => {
    const html = renderReport('html', documentSaying(text))
    expect(html).not.toMatch(/<(script|img|a|iframe)\b/i)
    expect([...html.matchAll(/<[^>]*>/g)].filter((tag) => /\son\w+=/i.test(tag[0]))).toEqual([])
    expect(html.match(/<details/g)?.length ?? 0).toBe(html.match(/<\/details>/g)?.length ?? 0)
  })

  test.each(NASTY)('%j: our JUnit stays well-formed', (text) => {
    const parser = new SaxesParser()
    parser.on('error', (error) => { throw error })
    expect(() => parser.write(renderReport('junit', documentSaying(text))).close()).not.toThrow()
  })

  test.each(NASTY)('%j: JSON gives it back exactly', (text) => {
    const parsed = JSON.parse(renderReport('json', documentSaying(text))) as RunDocument
    expect(parsed.trials[0]?.notes[0]).toBe(text)
  })

  test('outside of code, Markdown holds no link, mention, element or heading of it', () => {
    for (const text of NASTY) {
      // Escaped characters and code first: what is left is what a Markdown reader acts on.
      const outside = renderReport('md', documentSaying(text)).replace(/\\[^\n]/g, '')
        .replace(/```sh\n[\s\S]*?\n```\n/g, '').replace(/(?<!`)(`+)(?!`)([^\n]*?[^`\n])\1(?!`)/g, '')
      expect(outside).not.toMatch(/<(?!\/?(?:details|summary)>)|`|\[|(?<!\*)\*(?!\*)|@everyone|https:\/\/|^# heading/m)
      expect(outside.match(/<details>/g)).toHaveLength(1)
      expect(outside.match(/<\/details>/g)).toHaveLength(1)
    }
  })

  test('a huge text is cut, and many names end in how many more there are', () => {
    const names = Object.fromEntries(Array.from({ length: 32 }, (_, index) => [`t${String(index).padStart(2, '0')}`, 'failed' as const]))
    const document = documentOf(plan(['x']), [baseline(testRun(names))], [record('x', testRun(names), { notes: ['n'.repeat(1e6)] })])
    for (const format of ['text', 'md', 'html'] as const) {
      const report = renderReport(format, document)
      expect(report.length).toBeLessThan(30_000)
      expect(report).toContain('and 12 more')
    }
  })
})

describe('odd paths', () => {
  const PATHS = ['a b.txt', 'quo"te.txt', 'back\\slash.txt', 'x b/y/in.txt', 'höhe.txt', '-dash.txt', ':(glob)st*r.txt', 'dollar$(id).txt', "it's.txt", 'tick`s`.txt', 'pipe|.txt']
  const UNSEEN = { 'tab\tname.txt': 'tab␉name.txt', ' lead.txt': '␠lead.txt', 'trail ': 'trail␠' }
  const document = documentOf(plan(['x']), [baseline(testRun({ a: 'failed' }))], [
    record('x', testRun({ a: 'passed' }), { diff: diff([...PATHS, ...Object.keys(UNSEEN)]) }),
  ])
  /** With one file per path shown: the report lists at most twenty. */
  const lines = (format: 'text' | 'md'): string[] => renderReport(format, document).split('\n')

  test('the table shows each exactly and once, white space at the ends and tabs made visible', () => {
    const shown = lines('text').filter((line) => line.startsWith('    M ')).map((line) => line.slice(6))
    expect(shown).toEqual([...PATHS, ...Object.values(UNSEEN)])
  })

  test('Markdown shows each as code, exactly and once', () => {
    const shown = lines('md').filter((line) => line.startsWith('- M ')).map((line) => /^- M (`+) ?(.*?) ?\1 \(/.exec(line)?.[2])
    expect(shown).toEqual([...PATHS, ...Object.values(UNSEEN)])
  })

  test('HTML shows each exactly and once', () => {
    const html = renderReport('html', document)
    const decoded = [...html.matchAll(/<li>M <code>(.*?)<\/code><\/li>/g)]
      .map((match) => (match[1] ?? '').replace(/&#(\d+);/g, (_, code: string) => String.fromCharCode(Number(code))))
    expect(decoded).toEqual([...PATHS, ...Object.keys(UNSEEN)])
  })
})

describe('the HTML page', () => {
  const patch = ['diff --git a/src/cart.js b/src/cart.js', 'index 1..2 100644', '--- a/src/cart.js', '+++ b/src/cart.js', '@@ -1 +1 @@',
    '-const a = "<script>"', '+const a = 1', ''].join('\n')

  test('shows the patch of an approach as text, one fold per file', () => {
    const html = renderReport('html', threeApproaches(), { patches: { 'trials/fix/1/patch': patch } })
    expect(html.match(/<details/g)).toHaveLength(1)
    expect(html).toContain('<summary>M <code>src/cart.js</code> <span class="soft">+2 −1</span></summary>')
    expect(html).toContain('<span class="del">-const a = &#34;&#60;script&#62;&#34;</span><span class="add">+const a = 1</span>')
  })

  test('a long patch is cut, and it is said how much is left out', () => {
    const long = patch + '+x\n'.repeat(5000)
    const html = renderReport('html', threeApproaches(), { patches: { 'trials/fix/1/patch': long } })
    expect(html).toContain('… 4003 more lines')
  })

  test('loads nothing and runs nothing', () => {
    const html = renderReport('html', threeApproaches())
    expect(html).not.toMatch(/<script|<link|src=|url\(/i)
    expect(html).toContain("default-src 'none'")
  })
})

describe('the text report', () => {
  test('columns stay aligned when a name has wide characters', () => {
    const document = documentOf(plan(['x']), [baseline(testRun({ a: 'failed' }))], [record('x', testRun({ a: 'passed' }))])
    const wide = { ...document, trials: document.trials.map((trial) => ({ ...trial, label: '修正' })), ranking: ['修正'] }
    const row = renderReport('text', wide).split('\n').find((line) => line.startsWith('修正'))
    // Two characters, four columns: six columns of "approach" less are filled.
    expect(row).toMatch(/^修正 {6}better/)
  })

  test('has colours only when asked for', () => {
    expect(renderReport('text', threeApproaches())).not.toContain('\u001b')
    expect(renderReport('text', threeApproaches(), { colour: true })).toContain('\u001b[32mbetter\u001b[0m')
  })

  test('names repeats apart', () => {
    const document = documentOf(plan(['x'], { repeats: 2 }), [baseline(testRun({ a: 'failed' }))],
      [record('x', testRun({ a: 'passed' })), record('x', testRun({ a: 'passed' }), { repeat: 2 })])
    expect(renderReport('text', document)).toMatch(/x #1 .*\nx #2 /)
  })

  test('unknown figures are dashes, never NaN', () => {
    const document = documentOf(plan(['x']), [], [record('x', null, { state: 'error', diff: null, timingsMs: {}, memory: { reservedBytes: null, peakPrivateBytes: null } })])
    for (const format of reportFormats) expect(renderReport(format, document)).not.toMatch(/NaN|Infinity|undefined/)
  })
})

test('the names of formats are known, and nothing else is one', () => {
  expect(reportFormats).toEqual(['text', 'md', 'html', 'json', 'junit', 'ctrf'])
  expect([isReportFormat('md'), isReportFormat('toString')]).toEqual([true, false])
})
