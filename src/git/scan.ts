/**
 * What differs in a working tree from an index, as git lists it, in one script.
 *
 * Owns: the questions and the reading of their answers. What is done with them is decided in stage.ts.
 */
import { pathKey, splitRecords } from './paths.js'
import { sectionOutput, type ScriptResult } from './sections.js'

/** Differences of a working tree from an index. */
export interface Scan {
  /** Tracked paths that changed, with the mode they had in the index. */
  changed: Map<string, string>
  /** Tracked paths that are gone, or that a link or a folder took the place of. */
  deleted: Buffer[]
  /** New paths that are not ignored; those of nested repositories end with a slash. */
  untracked: Buffer[]
}

/** Asks for a {@link Scan}. `git diff`, unlike `diff-files`, compares content where only the times differ. */
export const SCAN_SCRIPT = `
cd "$GIT_WORK_TREE" || exit 1
git diff --raw -z --no-abbrev --no-renames --no-ext-diff --ignore-submodules=dirty; end changed
git ls-files -o -z --exclude-standard; end untracked
`

/**
 * Reads the answers to {@link SCAN_SCRIPT}.
 * @throws Kosa8Error GUEST_COMMAND_FAILED when one is missing.
 */
export function readScan(result: ScriptResult): Scan {
  const scan: Scan = { changed: new Map(), deleted: [], untracked: splitRecords(sectionOutput(result, 'untracked')) }
  const raw = splitRecords(sectionOutput(result, 'changed'))
  for (let at = 0; at + 1 < raw.length; at += 2) {
    const [oldMode, , , , letter] = raw[at]!.toString('latin1').slice(1).split(' ')
    const path = raw[at + 1]!
    if (letter === 'D') scan.deleted.push(path)
    else if (oldMode !== '000000' || !scan.changed.has(pathKey(path))) scan.changed.set(pathKey(path), oldMode!)
  }
  return scan
}
