/**
 * Makes text from the guest safe to show, format by format.
 *
 * Owns: what counts as invisible or dangerous, and how it is shown: control characters as their pictures (a tab
 * is ␉), characters that reorder or hide text as ⟨U+202E⟩. Backslashes, quotes and spaces inside stay as they are,
 * so that a path is shown exactly.
 */

const CONTROLS = /[\u0000-\u001f\u007f]/g
/** C1 controls, soft hyphen, zero-width and direction marks, line separators, byte order mark, tags, lone surrogates. */
const HIDDEN =
  /[\u0080-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\u{e0000}-\u{e007f}\p{Surrogate}]/gu

/** Longest text shown in one place. */
const SHOWN_LENGTH_MAX = 1000

/** One line in which every character can be seen; longer text is cut with an ellipsis. */
export function makeVisible(text: string, lengthMax = SHOWN_LENGTH_MAX): string {
  return shorten(text, lengthMax).replace(CONTROLS, pictureOf).replace(HIDDEN, codeOf)
}

/** Like {@link makeVisible}, and white space at the ends is shown too: for paths. */
export function makePathVisible(path: string): string {
  const inner = makeVisible(path, 4096)
  return inner.replace(/^ +| +$/g, (spaces) => '␠'.repeat(spaces.length))
}

/** Several lines in which every character but the line ends and tabs can be seen. */
export function makeLinesVisible(text: string): string {
  const controls = (c: string): string => c === '\n' || c === '\t' ? c : pictureOf(c)
  return text.replace(/\r\n/g, '\n').replace(CONTROLS, controls).replace(HIDDEN, codeOf)
}

function pictureOf(character: string): string {
  const code = character.charCodeAt(0)
  return code === 0x7f ? '␡' : String.fromCharCode(0x2400 + code)
}

function codeOf(character: string): string {
  return `⟨U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}⟩`
}

function shorten(text: string, lengthMax: number): string {
  return text.length <= lengthMax ? text : `${text.slice(0, lengthMax)}…`
}

/** Text for HTML, as content or in a quoted attribute. */
export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`)
}

/** Text for Markdown outside of code: no markup, HTML, link, mention or table cell can come of it. */
export function escapeMarkdown(text: string): string {
  return makeVisible(text)
    .replace(/[\\`*_{}[\]<>()#+!|~&$^=-]/g, (character) => `\\${character}`)
    .replace(/:(?=\/\/)/g, '\\:')
    .replace(/www\./gi, (match) => `${match.slice(0, 3)}\\.`)
    // Sites link @name after reading the Markdown, so an escape does not help: a space nobody sees does.
    .replace(/@/g, '@\u200b')
}

/** Text as code in Markdown, exact but for what cannot be seen; safe in tables too. */
export function codeSpan(text: string): string {
  const visible = makePathVisible(text)
  const longest = Math.max(0, ...[...visible.matchAll(/`+/g)].map((run) => run[0].length))
  const fence = '`'.repeat(longest + 1)
  const padding = /^`|`$/.test(visible) || visible === '' ? ' ' : ''
  return `${fence}${padding}${visible}${padding}${fence}`
}

/** JSON in which everything outside of printable text is an escape: safe to print to a terminal. */
export function stringifyVisibly(value: unknown): string {
  return JSON.stringify(value, null, 2).replace(/\u007f/g, '\\u007f').replace(HIDDEN, escapeUnits)
}

function escapeUnits(character: string): string {
  return [...Array(character.length).keys()]
    .map((index) => `\\u${character.charCodeAt(index).toString(16).padStart(4, '0')}`).join('')
}
