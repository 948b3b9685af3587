/**
 * A patch taken apart into files, for showing it. It is never applied from here.
 */

/** One file's part of a patch. */
export interface PatchFile {
  /** What follows `diff --git`: both paths as git writes them. */
  header: string
  lines: string[]
  /** Lines beyond the limit that are not in `lines`. */
  omittedLines: number
}

/** Longest line kept, in UTF-16 units. */
const LINE_LENGTH_MAX = 1000

/** Splits a patch at its `diff --git` lines; keeps at most `linesMax` lines of each file. */
export function splitPatch(patch: string, linesMax: number): PatchFile[] {
  const files: PatchFile[] = []
  let inHunk = false
  for (const line of patch.replace(/\n$/, '').split('\n')) {
    if (line.startsWith('diff --git ')) {
      files.push({ header: line.slice('diff --git '.length), lines: [], omittedLines: 0 })
      inHunk = false
      continue
    }
    const file = files.at(-1)
    if (file === undefined) continue
    if (line.startsWith('@@') || line.startsWith('GIT binary patch')) inHunk = true
    // What stands before the first hunk says nothing that the list of files does not.
    if (!inHunk && !/^(old mode|new mode|rename|similarity|deleted|new file)/.test(line)) continue
    if (file.lines.length >= linesMax) file.omittedLines += 1
    else file.lines.push(line.length > LINE_LENGTH_MAX ? `${line.slice(0, LINE_LENGTH_MAX)}…` : line)
  }
  return files
}
