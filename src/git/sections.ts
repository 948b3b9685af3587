/**
 * Several questions in one script: each start of a program costs a tenth of a second in an emulated guest.
 *
 * Owns: telling the answers apart. After each answer the script calls `end <name>`, which prints a mark made
 * for this one call, so that no path or file content can pass for it.
 */
import { randomBytes } from 'node:crypto'
import { LIST_BYTES_MAX, placeEnvironment, type StagePlace } from './stage-place.js'
import { commandError, type WorkspaceRunOptions } from './workspace.js'

/** What one part of a script printed, and how its last command ended. */
export interface Section {
  exitCode: number
  output: Buffer
}

/** How a script ended, and its sections by name: only those it got to. */
export interface ScriptResult {
  exitCode: number
  stderr: string
  sections: Map<string, Section>
}

// Shell builtins only: no program is started for a mark.
const PRELUDE = `
mark=$1; shift
end() { status=$?; printf '\\000%s %s %s\\000' "$mark" "$1" "$status"; }
`

/**
 * Runs a shell script with the place's private environment: `$GIT_DIR`, `$GIT_WORK_TREE` and `$GIT_INDEX_FILE`
 * are set, the current folder is `/`.
 */
export async function runSections(
  place: StagePlace, script: string, options: Pick<WorkspaceRunOptions, 'timeoutMs'> & { args?: string[] } = {},
): Promise<ScriptResult> {
  const { args = [], ...limits } = options
  const mark = randomBytes(16).toString('hex')
  const result = await place.run(['sh', '-c', PRELUDE + script, 'sh', mark, ...args], {
    cwd: '/', env: placeEnvironment(place), stdoutBytesMax: LIST_BYTES_MAX, ...limits,
    ...(place.signal === undefined ? {} : { signal: place.signal }),
  })
  return { exitCode: result.exitCode, stderr: result.stderr.toString('utf8'), sections: cutSections(result.stdout, mark) }
}

function cutSections(output: Buffer, mark: string): Map<string, Section> {
  const sections = new Map<string, Section>()
  const opening = Buffer.from(`\0${mark} `)
  let start = 0
  for (let at = output.indexOf(opening); at !== -1; at = output.indexOf(opening, start)) {
    const close = output.indexOf(0, at + opening.length)
    if (close === -1) break
    const [name, status] = output.toString('latin1', at + opening.length, close).split(' ')
    sections.set(name!, { exitCode: Number(status), output: output.subarray(start, at) })
    start = close + 1
  }
  return sections
}

/**
 * Output of a section whose command must have succeeded.
 * @throws Kosa8Error GUEST_COMMAND_FAILED.
 */
export function sectionOutput(result: ScriptResult, name: string): Buffer {
  const section = result.sections.get(name)
  if (section?.exitCode === 0) return section.output
  throw commandError(`looking at the working tree (${name})`, section?.exitCode ?? result.exitCode, result.stderr)
}
