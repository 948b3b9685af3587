/**
 * The evidence folder: our own git folder in the guest, over the user's working tree there.
 *
 * Owns: where it lies, and setting it right before every use. What runs in the guest may write anywhere, so
 * configuration and attributes are written anew each time; only objects and the index of the base are relied
 * on, and the host checks what comes out of them. The repository's own `.git` takes no part.
 */
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { Base } from '../model/run.js'
import { BYTE_WISE_ATTRIBUTES, privateConfig } from './private-git.js'
import { runSections, type ScriptResult } from './sections.js'
import type { StagePlace } from './stage-place.js'
import type { Workspace } from './workspace.js'

/** Absolute path of the evidence folder in the guest. */
export function evidenceFolder(workspace: Workspace): string {
  return `${workspace.stateDirectory}/evidence`
}

/** Index of the base, with what is known of unchanged files; copied for use, replaced with the base. */
export const BASE_INDEX = 'base.index'
/** Its time is the checkpoint's: files changed later are newer. */
export const BASE_MARKER = 'base.marker'
/** The base's commit in the first line, then what the guest's refs named at the checkpoint (guest-refs.ts). */
export const BASE_TIPS = 'base.tips'

/** Name of git's object format that ids of this length belong to. */
export function objectFormatOf(base: Base): 'sha1' | 'sha256' {
  return base.commit.length === 64 ? 'sha256' : 'sha1'
}

// A program is started only where something is to be mended. Copies of an index keep its time: by it git
// knows which entries it must compare by content.
const restoreScript = (objectFormat: string): string => `
[ -d "$GIT_DIR/objects/pack" ] && [ -f "$GIT_DIR/${BASE_INDEX}" ] && [ -f "$GIT_DIR/${BASE_MARKER}" ] || exit 66
if [ -L "$GIT_WORK_TREE" ]; then exit 67; fi
[ -d "$GIT_WORK_TREE" ] || mkdir -p "$GIT_WORK_TREE" || exit 66
cd "$GIT_DIR" || exit 66
for f in hooks commondir config.worktree objects/info/alternates objects/info/http-alternates info/grafts \\
  "$GIT_INDEX_FILE" "$GIT_INDEX_FILE.lock"
do if [ -e "$f" ] || [ -L "$f" ]; then rm -rf "$f" || exit 66; fi; done
for f in config HEAD info/attributes
do if [ -L "$f" ] || { [ -e "$f" ] && [ ! -f "$f" ]; }; then rm -rf "$f" || exit 66; fi; done
[ -d refs ] && [ -d info ] && [ -d "\${GIT_INDEX_FILE%/*}" ] || mkdir -p refs info "\${GIT_INDEX_FILE%/*}" || exit 66
printf %s '${privateConfig(objectFormat)}' > config && printf %s '${BYTE_WISE_ATTRIBUTES}' > info/attributes || exit 66
printf 'ref: refs/heads/kosa8\\n' > HEAD && cp -p ${BASE_INDEX} "$GIT_INDEX_FILE" || exit 66
if [ -f ${BASE_TIPS} ]; then read -r word oid < ${BASE_TIPS}; printf %s "$oid"; fi; end base
`

/** The evidence folder in use. */
export interface Evidence {
  /** A place to stage in, on a copy of the base's index. */
  place: StagePlace
  /** The commit the guest says its index of the base belongs to; empty when it does not say. Untrusted. */
  recordedBase: string
  /** What the further script printed. */
  result: ScriptResult
}

/**
 * Sets the evidence folder right, and runs a script of sections (sections.ts) after that.
 * @param indexName path of the copy of the index, relative to the folder.
 * @throws Kosa8Error EVIDENCE_REFUSED when the folder was destroyed.
 */
export async function openEvidence(
  workspace: Workspace, base: Base, indexName: string, options: { script?: string; signal?: AbortSignal | undefined } = {},
): Promise<Evidence> {
  const gitDir = evidenceFolder(workspace)
  const place: StagePlace = {
    run: workspace.run.bind(workspace), gitDir, workTree: workspace.path, index: `${gitDir}/${indexName}`, signal: options.signal,
  }
  const result = await runSections(place, restoreScript(objectFormatOf(base)) + (options.script ?? ''))
  const recorded = result.sections.get('base')
  if (recorded !== undefined) return { place, result, recordedBase: recorded.output.toString('latin1') }
  if (result.exitCode === 67) throw new Kosa8Error('EVIDENCE_REFUSED', `${workspace.path} was replaced by a link`)
  throw new Kosa8Error('EVIDENCE_REFUSED', `kosa8's record of the base in the guest, ${gitDir}, was destroyed`, {
    hint: 'the strategy must leave that folder alone', details: { exitCode: result.exitCode },
  })
}
