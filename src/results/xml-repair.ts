/**
 * Makes an ill-formed JUnit report readable: report writers forget to escape, and test output holds anything.
 *
 * Owns: the repairs, each of which keeps the report's structure. Called by `junit.ts` only after a strict
 * reading failed, so a well-formed report is never touched. Linear in the length of the text.
 */
import { removeEscapeSequences, replaceLoneSurrogates } from './text.js'

const FORBIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g
const STRAY_AMPERSAND = /&(?!(?:lt|gt|amp|quot|apos|#\d{1,7}|#x[0-9a-f]{1,6});)/gi
const CHARACTER_REFERENCE = /&#(?:(\d{1,7})|x([0-9a-f]{1,6}));/gi

/** Elements of the JUnit dialects; a `<` before anything else is text that was not escaped. */
const ELEMENTS = [
  'testsuites', 'testsuite', 'testcase', 'failure', 'error', 'skipped', 'warning', 'system-out', 'system-err',
  'properties', 'property', 'attachments', 'attachment', 'stackTrace', 'output',
  'rerunFailure', 'rerunError', 'flakyFailure', 'flakyError',
].join('|')

const TAG = new RegExp(
  `</?(?:${ELEMENTS})(?:\\s+[A-Za-z_:][\\w:.-]*\\s*=\\s*(?:"[^"]*"|'[^']*'))*\\s*/?>`, 'y')
const TAG_BEGUN = new RegExp(`</?(?:${ELEMENTS})[\\s/>]`, 'y')

/** The text with what XML forbids removed or escaped. */
export function repairXml(text: string): string {
  const withEscapes = text.replace(/&#(?:0*27|x0*1b);/gi, '\u001b')
  const clean = replaceLoneSurrogates(removeEscapeSequences(withEscapes)).replace(FORBIDDEN, '')
  const pieces: string[] = []
  let position = 0
  while (position < clean.length) {
    const open = clean.indexOf('<', position)
    pieces.push(repairText(clean.slice(position, open === -1 ? undefined : open)))
    if (open === -1) break
    const end = endOfMarkup(clean, open)
    pieces.push(end === open ? '&lt;' : repairMarkup(clean.slice(open, end)))
    position = end === open ? open + 1 : end
  }
  return pieces.join('')
}

/** Where the markup that starts at `open` ends; `open` itself when it is no markup. */
function endOfMarkup(text: string, open: number): number {
  for (const [start, close] of [['<![CDATA[', ']]>'], ['<!--', '-->'], ['<?', '?>'], ['<!DOCTYPE', '>']] as const) {
    if (!text.startsWith(start, open)) continue
    const end = text.indexOf(close, open + start.length)
    return end === -1 ? text.length : end + close.length
  }
  TAG.lastIndex = open
  if (TAG.test(text)) return TAG.lastIndex
  TAG_BEGUN.lastIndex = open
  if (!TAG_BEGUN.test(text)) return open
  const end = text.indexOf('>', open)
  return end === -1 ? text.length : end + 1
}

function repairMarkup(markup: string): string {
  if (/^<[!?]/.test(markup)) return markup
  return repairText(`<${markup.slice(1).replaceAll('<', '&lt;')}`)
}

function repairText(text: string): string {
  return text
    .replace(STRAY_AMPERSAND, '&amp;')
    .replace(CHARACTER_REFERENCE, (reference, decimal?: string, hexadecimal?: string) => {
      const code = decimal === undefined ? Number.parseInt(hexadecimal ?? '0', 16) : Number(decimal)
      return isAllowedCode(code) ? reference : ''
    })
    .replaceAll(']]>', ']]&gt;')
}

function isAllowedCode(code: number): boolean {
  if (code === 9 || code === 10 || code === 13) return true
  return (code >= 0x20 && code <= 0xd7ff) || (code >= 0xe000 && code <= 0xfffd) || (code >= 0x10000 && code <= 0x10ffff)
}
