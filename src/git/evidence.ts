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
/** Commits the guest's refs named at the checkpoint, HEAD first. */
export const BASE_TIPS = 'base.tips'

/** Name of git's object format that ids of this length belong to. */
export function objectFormatOf(base: Base): 'sha1' | 'sha256' {
  return base.commit.length === 64 ? 'sha256' : 'sha1'
}

// Copies of an index keep its time: by it git knows which entries it must compare by content.
const RESTORE_SCRIPT = `
[ -d "$1/objects/pack" ] && [ -f "$1/${BASE_INDEX}" ] && [ -f "$1/${BASE_MARKER}" ] || exit 66
if [ -L "$5" ]; then exit 67; fi
mkdir -p "$5" && cd "$1" || exit 66
rm -rf hooks commondir config.worktree objects/info/alternates objects/info/http-alternates info/grafts || exit 1
mkdir -p refs info && printf %s "$2" > config && printf %s "$3" > info/attributes && printf 'ref: refs/heads/kosa8\\n' > HEAD || exit 1
rm -f "$4" "$4.lock" && cp -p "${BASE_INDEX}" "$4"
`

/**
 * Sets the evidence folder right and gives a place to stage in, on a copy of the base's index.
 * @throws Kosa8Error EVIDENCE_REFUSED when the folder was destroyed.
 */
export async function openEvidence(
  workspace: Workspace, base: Base, indexName: string, signal?: AbortSignal,
): Promise<StagePlace> {
  const gitDir = evidenceFolder(workspace)
  const index = `${gitDir}/${indexName}`
  const result = await workspace.run(
    ['sh', '-c', RESTORE_SCRIPT, 'sh', gitDir, privateConfig(objectFormatOf(base)), BYTE_WISE_ATTRIBUTES, index, workspace.path],
    { cwd: '/', ...(signal === undefined ? {} : { signal }) },
  )
  if (result.exitCode === 67) {
    throw new Kosa8Error('EVIDENCE_REFUSED', `${workspace.path} was replaced by a link`)
  }
  if (result.exitCode !== 0) {
    throw new Kosa8Error('EVIDENCE_REFUSED', `kosa8's record of the base in the guest, ${gitDir}, was destroyed`, {
      hint: 'the strategy must leave that folder alone', details: { exitCode: result.exitCode },
    })
  }
  return { run: workspace.run.bind(workspace), gitDir, workTree: workspace.path, index, signal }
}
