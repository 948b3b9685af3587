/**
 * Columns of text for a terminal.
 *
 * Owns: how wide a character is shown and the layout of a table. Used by the text report and the lists.
 */

/** One cell; `colour` is the number of an SGR colour, used only where the output has colours. */
export interface Cell {
  text: string
  colour?: number
}

/** How a table is laid out. */
export interface TableLayout {
  /** Columns of the terminal. The last column is cut to fit, the others are not. */
  columns: number
  colour: boolean
  /** Indexes of columns aligned to the right. */
  right: number[]
}

/** East Asian wide and emoji ranges; a simple table is enough for alignment. */
const WIDE = new RegExp(`[${[
  '\\u1100-\\u115f', '\\u2e80-\\u303e', '\\u3041-\\u4dbf', '\\u4e00-\\ua4cf', '\\uac00-\\ud7a3', '\\uf900-\\ufaff',
  '\\ufe30-\\ufe4f', '\\uff00-\\uff60', '\\uffe0-\\uffe6',
  '\\u{1f300}-\\u{1f64f}', '\\u{1f680}-\\u{1f6ff}', '\\u{1f900}-\\u{1f9ff}', '\\u{20000}-\\u{3fffd}',
].join('')}]`, 'u')
const COMBINING = /\p{Mark}/u
/** The last column keeps at least this width. */
const LAST_WIDTH_MIN = 12

/** Columns a text takes on a terminal. */
export function displayWidth(text: string): number {
  let width = 0
  for (const character of text) width += widthOf(character)
  return width
}

function widthOf(character: string): number {
  if (COMBINING.test(character)) return 0
  return WIDE.test(character) ? 2 : 1
}

/** The text, cut with an ellipsis where it is wider than `width`. */
export function fitWidth(text: string, width: number): string {
  if (displayWidth(text) <= width) return text
  let fitted = ''
  let used = 0
  for (const character of text) {
    used += widthOf(character)
    if (used > width - 1) break
    fitted += character
  }
  return `${fitted}…`
}

/** Lines of a table; the first row is the heading. */
export function layOutTable(rows: Cell[][], layout: TableLayout): string[] {
  const count = Math.max(0, ...rows.map((row) => row.length))
  const widths = Array.from({ length: count }, (_, column) =>
    Math.max(0, ...rows.map((row) => displayWidth(row[column]?.text ?? ''))))
  const before = widths.slice(0, -1).reduce((sum, width) => sum + width + 2, 0)
  widths[count - 1] = Math.max(LAST_WIDTH_MIN, Math.min(widths[count - 1] ?? 0, layout.columns - before))
  return rows.map((row, index) => row.map((cell, column) => {
    const width = widths[column] ?? 0
    const text = fitWidth(cell.text, width)
    const padding = ' '.repeat(Math.max(0, width - displayWidth(text)))
    const isRight = layout.right.includes(column)
    const painted = paint(text, index === 0 ? 1 : cell.colour, layout.colour)
    if (isRight) return padding + painted
    return column === row.length - 1 ? painted : painted + padding
  }).join('  ').trimEnd())
}

/** The text in a terminal colour, where colours are wanted. */
export function paint(text: string, colour: number | undefined, wanted: boolean): string {
  return wanted && colour !== undefined && text !== '' ? `\u001b[${colour}m${text}\u001b[0m` : text
}

/** Breaks a text at spaces into lines of at most `width` columns. */
export function wrapText(text: string, width: number): string[] {
  const lines: string[] = []
  let line = ''
  for (const word of text.split(' ')) {
    const longer = line === '' ? word : `${line} ${word}`
    if (line !== '' && displayWidth(longer) > width) {
      lines.push(line)
      line = word
    } else line = longer
  }
  return [...lines, line]
}
