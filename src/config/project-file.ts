/**
 * `kosa8.yaml` of a repository.
 *
 * Owns: reading it within bounds, and errors that name file, line and key. The file is data: no tags of its
 * own making, no programs. Called by the CLI's `fork`.
 */
import path from 'node:path'
import { LineCounter, isMap, isPair, parseDocument, type Document } from 'yaml'
import type { z } from 'zod'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { findNearest } from '../util/nearest.js'
import { openWithoutWaiting } from '../util/open-without-waiting.js'
import { knownKeysAt, projectSchema, type ProjectFile } from './project-schema.js'

export const PROJECT_FILE = 'kosa8.yaml'
/** Largest kosa8.yaml that is read, in bytes: a hundred times what people write. */
const FILE_BYTES_MAX = 1024 * 1024
/** How often aliases may repeat a part; guards against a small file that grows without end. */
const ALIASES_MAX = 100

/**
 * Reads `kosa8.yaml` of a folder; an absent or empty file is an empty project.
 * @throws CONFIG_INVALID naming line and key.
 */
export async function readProjectFile(folder: string): Promise<ProjectFile> {
  const text = await readBoundedText(path.join(folder, PROJECT_FILE))
  return text === null ? {} : parseProjectFile(text)
}

/** Parses the text of a `kosa8.yaml`. @throws CONFIG_INVALID naming line and key. */
export function parseProjectFile(text: string): ProjectFile {
  const lines = new LineCounter()
  const document = parseDocument(text, { lineCounter: lines, schema: 'core', uniqueKeys: true, prettyErrors: false })
  const fault = document.errors[0] ?? document.warnings[0]
  if (fault !== undefined) throw invalid(lines.linePos(fault.pos[0]).line, firstLine(fault.message))
  const value = toPlainData(document)
  const parsed = projectSchema.safeParse(value ?? {})
  if (parsed.success) return parsed.data
  throw explainIssue(parsed.error.issues[0] as z.core.$ZodIssue, document, lines)
}

function toPlainData(document: Document): unknown {
  try {
    return document.toJS({ maxAliasCount: ALIASES_MAX })
  } catch (error) {
    throw invalid(1, error instanceof Error ? firstLine(error.message) : String(error))
  }
}

function explainIssue(issue: z.core.$ZodIssue, document: Document, lines: LineCounter): Kosa8Error {
  if (issue.code === 'unrecognized_keys') {
    const key = issue.keys[0] as string
    const place = [...issue.path, key]
    const known = knownKeysAt(issue.path) ?? []
    const nearest = findNearest(key, known)
    return invalid(lineOf(place, document, lines), `unknown key ${place.join('.')}`,
      nearest === null ? `known keys are ${known.join(', ')}` : `did you mean ${nearest}?`)
  }
  // Of a union the branch that fits the value's kind says what is wrong; the others only that it is not theirs.
  if (issue.code === 'invalid_union') {
    const branches = issue.errors.map((issues) => issues[0]).filter((inner) => inner !== undefined)
    const telling = branches.find((inner) => inner.code !== 'invalid_type' || inner.path.length > 0)
    if (telling !== undefined) return explainIssue({ ...telling, path: [...issue.path, ...telling.path] }, document, lines)
  }
  if (issue.code === 'invalid_key') {
    const inner = issue.issues[0]
    if (inner !== undefined) return explainIssue({ ...inner, path: issue.path }, document, lines)
  }
  const place = issue.path.map(String).join('.')
  if (issue.code === 'invalid_type' && issue.input === undefined && issue.message.endsWith('received undefined')) {
    return invalid(lineOf(issue.path, document, lines), `${place} is missing`)
  }
  return invalid(lineOf(issue.path, document, lines), `${place === '' ? 'the file' : place}: ${firstLine(issue.message)}`)
}

/** Line of the key at a path, or of the nearest part above it that is there. */
function lineOf(place: readonly PropertyKey[], document: Document, lines: LineCounter): number {
  let line = 1
  let node: unknown = document.contents
  for (const step of place) {
    if (!isMap(node)) break
    const pair = node.items.find((item) => isPair(item) && String(item.key) === String(step))
    const offset = (pair?.key as { range?: [number, number, number] } | undefined)?.range?.[0]
    if (offset === undefined) break
    line = lines.linePos(offset).line
    node = pair?.value
  }
  return line
}

function invalid(line: number, message: string, hint?: string): Kosa8Error {
  return new Kosa8Error('CONFIG_INVALID', `${PROJECT_FILE}, line ${line}: ${message}`, { hint, details: { line } })
}

function firstLine(text: string): string {
  return text.split('\n', 1)[0] as string
}

async function readBoundedText(file: string): Promise<string | null> {
  const handle = await openWithoutWaiting(file).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null
    throw new Kosa8Error('CONFIG_INVALID', `${PROJECT_FILE} cannot be read: ${error.message}`, { cause: error })
  })
  if (handle === null) return null
  try {
    const found = await handle.stat()
    if (!found.isFile()) throw new Kosa8Error('CONFIG_INVALID', `${PROJECT_FILE} is not a regular file`)
    if (found.size > FILE_BYTES_MAX) {
      throw new Kosa8Error('CONFIG_INVALID', `${PROJECT_FILE} has ${found.size} bytes; at most ${FILE_BYTES_MAX} are read`)
    }
    return (await handle.readFile('utf8')).replace(/^\uFEFF/, '')
  } finally {
    await handle.close()
  }
}
