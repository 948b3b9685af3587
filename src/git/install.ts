/**
 * Puts a repository into a guest: working tree, `.git`, and our evidence folder beside it.
 *
 * Owns: the order of these steps. Files are written byte by byte as the base has them; what was uncommitted on
 * the host is uncommitted in the guest: HEAD and index are the user's HEAD, the working tree is the base.
 */
import { Readable } from 'node:stream'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { PreparedBase } from './base.js'
import { BASE_INDEX, BASE_MARKER, BASE_TIPS, evidenceFolder, objectFormatOf } from './evidence.js'
import type { PackedBase } from './pack.js'
import { BYTE_WISE_ATTRIBUTES, privateConfig, privateEnvironment } from './private-git.js'
import { commandError, type Workspace } from './workspace.js'

const PREPARE_SCRIPT = `
set -e
own=$GIT_WORK_TREE/.git
for f in "$GIT_WORK_TREE"/* "$GIT_WORK_TREE"/.[!.]* "$GIT_WORK_TREE"/..?*
do if [ -e "$f" ] || [ -L "$f" ]; then exit 65; fi; done
if [ -e "$GIT_DIR" ] || [ -L "$GIT_DIR" ]; then rm -rf "$GIT_DIR"; fi
mkdir -p "$GIT_DIR/objects/pack" "$GIT_DIR/objects/info" "$GIT_DIR/refs" "$GIT_DIR/info" \\
  "$own/objects/pack" "$own/objects/info" "$own/refs/heads" "$own/refs/tags" "$own/info"
printf %s "$1" > "$GIT_DIR/config"; printf %s "$2" > "$GIT_DIR/info/attributes"; printf 'ref: refs/heads/kosa8\\n' > "$GIT_DIR/HEAD"
printf '%s\\n' "$3" > "$own/HEAD"; printf 'base %s\\n' "$4" > "$GIT_DIR/${BASE_TIPS}"
base_tree=$5; head_tree=$6; pack=$7; shift 7
`

// Standard input holds the files that pairs of path and size name, one after the other, then a line that shows
// that nothing is missing.
const RECEIVE_SCRIPT = `
while [ $# -gt 0 ]; do
  case $1 in *.pack|*.idx) umask 222 ;; *) umask 022 ;; esac
  head -c "$2" > "$1"; shift 2
done
umask 022
read -r word && [ "$word" = end ]
for f in pack idx; do set -- "$@" "$GIT_DIR/objects/pack/$pack.$f"; done
ln "$@" "$own/objects/pack/" 2>/dev/null || cp -f "$@" "$own/objects/pack/"
`

const CHECK_OUT_SCRIPT = `
cd "$GIT_WORK_TREE"
git read-tree -v --reset -u "$base_tree"
: > "$GIT_DIR/${BASE_MARKER}"
cp -p "$GIT_INDEX_FILE" "$own/index"
if [ "$head_tree" != "$base_tree" ]; then GIT_DIR=$own GIT_INDEX_FILE=$own/index git read-tree --reset "$head_tree"; fi
`

/** How far an installation is; the second part is silent unless it takes git more than two seconds. */
export type InstallProgress =
  | { part: 'sending'; sentBytes: number; totalBytes: number }
  | { part: 'checkingOut'; percent: number }

/**
 * Installs a prepared base. The workspace's folder must be empty or missing.
 * @throws Kosa8Error SANDBOX_EXISTS when it is not empty, GUEST_COMMAND_FAILED.
 */
export async function installWorkspace(
  workspace: Workspace, prepared: PreparedBase, pack: PackedBase,
  options: { signal?: AbortSignal; onProgress?: (progress: InstallProgress) => void } = {},
): Promise<void> {
  const gitDir = evidenceFolder(workspace)
  const { base, head, headTree, branch } = prepared
  const { onProgress = () => undefined } = options
  const file = pack.open((sentBytes, totalBytes) => onProgress({ part: 'sending', sentBytes, totalBytes }))
  const texts = [...textsOf(gitDir, `${workspace.path}/.git`, prepared)].filter(([, text]) => text.length > 0)
  const sizes = [
    `${gitDir}/objects/pack/${pack.name}.pack`, String(pack.packBytes), `${gitDir}/objects/pack/${pack.name}.idx`, String(pack.indexBytes),
    ...texts.flatMap(([path, text]) => [path, String(text.length)]),
  ]
  const result = await workspace.run([
    'sh', '-c', PREPARE_SCRIPT + RECEIVE_SCRIPT + CHECK_OUT_SCRIPT, 'sh',
    privateConfig(objectFormatOf(base)), BYTE_WISE_ATTRIBUTES, branch === null ? head : `ref: refs/heads/${branch}`, base.commit,
    base.tree, headTree, pack.name, ...sizes,
  ], {
    cwd: '/', env: privateEnvironment({ gitDir, workTree: workspace.path, index: `${gitDir}/${BASE_INDEX}` }),
    stdin: Readable.from(joinFiles(file, texts.map(([, text]) => text)), { objectMode: false }),
    onStderr: (chunk) => readPercent(chunk, (percent) => onProgress({ part: 'checkingOut', percent })),
    ...(options.signal === undefined ? {} : { signal: options.signal }),
  })
  if (result.exitCode === 65) {
    throw new Kosa8Error('SANDBOX_EXISTS', `there is something in ${workspace.path} of the sandbox already`, {
      hint: 'use a new sandbox for this repository',
    })
  }
  if (result.exitCode !== 0) throw commandError('installing the repository', result.exitCode, result.stderr.toString('utf8'))
}

/** Git's own count, e.g. `Updating files:  42% (21/50)`; the guest may print what it likes, so it is only shown. */
function readPercent(chunk: Buffer, tell: (percent: number) => void): void {
  const last = [...chunk.toString('latin1').matchAll(/: +(\d{1,2}|100)% \(/g)].at(-1)
  if (last !== undefined) tell(Number(last[1]))
}

async function* joinFiles(pack: Readable, texts: Buffer[]): AsyncGenerator<Buffer> {
  for await (const chunk of pack) yield chunk as Buffer
  yield* texts
  yield Buffer.from('end\n')
}

/** Small files of both git folders: path in the guest and content. */
function textsOf(evidence: string, own: string, prepared: PreparedBase): Map<string, Buffer> {
  const shallow = prepared.history.shallow.map((oid) => `${oid}\n`).join('')
  const files = new Map<string, string>()
  for (const folder of [evidence, own]) {
    files.set(`${folder}/shallow`, shallow)
    files.set(`${folder}/info/exclude`, prepared.excludes)
  }
  files.set(`${own}/packed-refs`, formatRefs(prepared))
  files.set(`${own}/config`, privateConfig(objectFormatOf(prepared.base)) + formatSettings(prepared.settings))
  return new Map([...files].map(([path, text]) => [path, Buffer.from(text)]))
}

function formatRefs({ head, branch, history }: PreparedBase): string {
  const refs = new Map(history.refs.map(({ name, oid }) => [name, oid]))
  if (branch !== null) refs.set(`refs/heads/${branch}`, head)
  const sorted = [...refs].sort(([a], [b]) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
  return ['# pack-refs with: sorted ', ...sorted.map(([name, oid]) => `${oid} ${name}`)].join('\n') + '\n'
}

/** The user's name, mail and remotes, so that a strategy can commit and see where the code came from. */
function formatSettings(settings: PreparedBase['settings']): string {
  const last = new Map<string, string[]>()
  for (const [key, value] of settings) {
    const isList = /^remote\..*\.(url|fetch)$/.test(key)
    last.set(key, isList ? [...last.get(key) ?? [], value] : [value])
  }
  return [...last].flatMap(([key, values]) => values.map((value) => formatSetting(key, value))).join('')
}

function formatSetting(key: string, value: string): string {
  const [section, name] = [key.slice(0, key.indexOf('.')), key.slice(key.lastIndexOf('.') + 1)]
  const sub = key.slice(section.length + 1, Math.max(section.length + 1, key.length - name.length - 1))
  const quote = (text: string): string => `"${text.replace(/[\\"]/g, '\\$&').replace(/\n/g, '\\n')}"`
  return `[${section}${sub === '' ? '' : ` ${quote(sub)}`}]\n\t${name} = ${quote(value)}\n`
}
