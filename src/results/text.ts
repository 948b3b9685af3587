/**
 * Text from the guest, made safe to keep: decoded, bounded, without control characters.
 *
 * Owns: bounds of names and messages, names of tests built from their parts. Does not own: making text
 * safe for one output format, which is the job of `report`. Used by every parser in this folder.
 */
import { createHash } from 'node:crypto'
import path from 'node:path'

/** Longest name kept, in UTF-16 units; a longer one ends in a hash of the whole, so that it stays unique. */
export const NAME_LENGTH_MAX = 400
/** Longest failure text kept per test. */
export const MESSAGE_LENGTH_MAX = 4000

/** Between a suite and what lies in it. */
export const NAME_SEPARATOR = ' › '

/** Terminal sequences; narrow enough not to swallow a tag or a quote of the report around them. */
const ESCAPE_SEQUENCES =
  /\u001b(?:\[[0-9:;=?]{0,32}[ !#$%]{0,2}[@-~]|\][^\u0007\u001b<>"']{0,512}(?:\u0007|\u001b\\)|[@-Z\\^_])/g
const LONE_SURROGATES = /\p{Surrogate}/gu
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\ufffe\uffff]/g

/** Bytes as text: UTF-8 unless a byte order mark or an XML declaration says otherwise; never throws. */
export function decodeText(content: Uint8Array): string {
  if (content[0] === 0xff && content[1] === 0xfe) return new TextDecoder('utf-16le').decode(content)
  if (content[0] === 0xfe && content[1] === 0xff) return decodeUtf16BigEndian(content)
  const head = new TextDecoder('latin1').decode(content.subarray(0, 200))
  const declared = /^<\?xml[^>]*encoding=["'](?:iso-8859-1|iso-8859-15|latin1|windows-1252|us-ascii)["']/i.test(head)
  return new TextDecoder(declared ? 'windows-1252' : 'utf-8').decode(content)
}

function decodeUtf16BigEndian(content: Uint8Array): string {
  const swapped = Buffer.from(content.subarray(0, content.length - content.length % 2))
  return new TextDecoder('utf-16le').decode(swapped.swap16())
}

/** One line without control characters or terminal sequences, at most {@link NAME_LENGTH_MAX} long. */
export function cleanName(text: string): string {
  const line = removeControls(text.slice(0, 100_000)).replace(/[\t\n]+/g, ' ').trim()
  if (line.length <= NAME_LENGTH_MAX) return line
  const digest = createHash('sha256').update(text).digest('hex').slice(0, 10)
  return `${replaceLoneSurrogates(line.slice(0, NAME_LENGTH_MAX - 12))}…~${digest}`
}

/** Several lines without control characters or terminal sequences, at most {@link MESSAGE_LENGTH_MAX} long. */
export function cleanMessage(text: string): string {
  const clean = removeControls(text.slice(0, MESSAGE_LENGTH_MAX * 4)).trim()
  if (clean.length <= MESSAGE_LENGTH_MAX) return clean
  return `${replaceLoneSurrogates(clean.slice(0, MESSAGE_LENGTH_MAX))}…`
}

/** Halves of a surrogate pair become U+FFFD, so that the text can be written as UTF-8 and read back. */
export function replaceLoneSurrogates(text: string): string {
  return text.replace(LONE_SURROGATES, '\ufffd')
}

/** Takes out terminal sequences as a whole: without their first character the rest would be noise. */
export function removeEscapeSequences(text: string): string {
  return text.replace(ESCAPE_SEQUENCES, '')
}

function removeControls(text: string): string {
  return replaceLoneSurrogates(removeEscapeSequences(text.replace(/\r\n?/g, '\n')).replace(CONTROLS, ''))
}

/** `suite › name` from its parts; empty parts are left out. */
export function joinName(parts: readonly string[]): string {
  const kept = parts.map((part) => part.trim()).filter((part) => part !== '')
  return cleanName(kept.join(NAME_SEPARATOR)) || '(no name)'
}

/** A path of the guest relative to the workspace, where it lies in there; `file:` addresses are taken apart. */
export function relativePath(file: string, workspace: string): string {
  const plain = file.startsWith('file://') ? file.slice('file://'.length) : file
  if (!plain.startsWith('/')) return path.posix.normalize(plain).replace(/^(\.\/)+/, '')
  const relative = path.posix.relative(workspace, path.posix.normalize(plain))
  return relative === '' || relative.startsWith('..') ? plain : relative
}
