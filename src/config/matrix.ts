/**
 * Matrix cells and the labels they give an approach. Pure.
 *
 * A label is a folder name and a component of a git ref: letters, digits and `._-` in values, joined by
 * `@`, `=` and `,`. A value that had to be changed for that carries a hash, so labels stay unique.
 */
import { createHash } from 'node:crypto'
import type { Matrix } from './project-defaults.js'

/** One choice of a value per parameter. */
export type MatrixCell = Record<string, string | number | boolean>

/** Longest label, in characters; folder names end at 255 bytes. */
const LABEL_LENGTH_MAX = 180
const VALUE_LENGTH_MAX = 40

/** Number of cells a matrix expands to. */
export function countCells(matrix: Matrix): number {
  return Object.values(matrix).reduce((count, values) => count * distinct(values).length, 1)
}

/** Every combination, the last parameter changing fastest; one empty cell for an empty matrix. */
export function expandMatrix(matrix: Matrix): MatrixCell[] {
  let cells: MatrixCell[] = [{}]
  for (const [key, values] of Object.entries(matrix)) {
    cells = cells.flatMap((cell) => distinct(values).map((value) => ({ ...cell, [key]: value })))
  }
  return cells
}

/** Values that read differently; `1` and `"1"` would give one label. */
function distinct(values: Matrix[string]): Matrix[string] {
  return values.filter((value, index) => values.findIndex((other) => String(other) === String(value)) === index)
}

/** `name`, or `name@key=value,key2=value2`. */
export function labelOf(name: string, cell: MatrixCell): string {
  const parts = Object.entries(cell).map(([key, value]) => `${key}=${safeValue(String(value))}`)
  const label = parts.length === 0 ? name : `${name}@${parts.join(',')}`
  return label.length <= LABEL_LENGTH_MAX ? label : `${label.slice(0, LABEL_LENGTH_MAX - 9)}-${shortHash(label)}`
}

/** Git forbids `..`, a dot or `.lock` at the end, and most punctuation. */
function safeValue(value: string): string {
  const isSafe = /^[A-Za-z0-9._-]+$/.test(value) && !/\.\.|\.$|\.lock$/.test(value) && value.length <= VALUE_LENGTH_MAX
  return isSafe ? value : `${value.replace(/[^A-Za-z0-9_-]/g, '_').slice(0, VALUE_LENGTH_MAX)}-${shortHash(value)}`
}

function shortHash(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 8)
}
