/**
 * Puts a repository into a guest: working tree, `.git`, and our evidence folder beside it.
 *
 * Owns: the order of these steps. Files are written byte by byte as the base has them; what was uncommitted on
 * the host is uncommitted in the guest: HEAD and index are the user's HEAD, the working tree is the base.
 */
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { PreparedBase } from './base.js'
import { recordTips } from './checkpoint-tips.js'
import { BASE_INDEX, BASE_MARKER, evidenceFolder, objectFormatOf } from './evidence.js'
import type { PackedBase } from './pack.js'
import { BYTE_WISE_ATTRIBUTES, privateConfig, privateEnvironment } from './private-git.js'
import { runChecked, type Workspace, type WorkspaceRunOptions } from './workspace.js'

const PREPARE_SCRIPT = `
set -e
mkdir -p "$1"
if [ -n "$(ls -A "$1")" ]; then echo "$1 is not empty" >&2; exit 65; fi
rm -rf "$2"
for d in "$2" "$1/.git"; do mkdir -p "$d/objects/pack" "$d/objects/info" "$d/refs/heads" "$d/refs/tags" "$d/info"; done
printf %s "$3" > "$2/config"; printf %s "$4" > "$2/info/attributes"; printf 'ref: refs/heads/kosa8\\n' > "$2/HEAD"
printf %s "$3" > "$1/.git/config"; printf 'ref: refs/heads/kosa8\\n' > "$1/.git/HEAD"
printf %s "$5" > "$2/info/exclude"; cp "$2/info/exclude" "$1/.git/info/exclude"
if [ -n "$6" ]; then printf %s "$6" > "$2/shallow"; cp "$2/shallow" "$1/.git/shallow"; fi
`

const RECEIVE_SCRIPT = `
set -e
cd "$1/objects/pack"
head -c "$3" > "$2.pack"; cat > "$2.idx"
[ "$(wc -c < "$2.pack")" -eq "$3" ] && [ "$(wc -c < "$2.idx")" -eq "$4" ]
chmod 444 "$2.pack" "$2.idx"
for f in pack idx; do ln "$2.$f" "$5/objects/pack/$2.$f" 2>/dev/null || cp "$2.$f" "$5/objects/pack/$2.$f"; done
`

const CHECK_OUT_SCRIPT = `
set -e
cd "$2"
git read-tree "$1"
git checkout-index -a -f -q -u
cp -p "$GIT_INDEX_FILE" "$3"
touch "$4"
`

const INDEX_SCRIPT = `
set -e
cp -p "$2" .git/index
if [ "$1" != "$3" ]; then git read-tree --reset "$1"; fi
git update-index -q --refresh || true
`

/**
 * Installs a prepared base. The workspace's folder must be empty or missing.
 * @throws Kosa8Error SANDBOX_EXISTS when it is not empty, GUEST_COMMAND_FAILED.
 */
export async function installWorkspace(
  workspace: Workspace, prepared: PreparedBase, pack: PackedBase,
  options: { signal?: AbortSignal; onProgress?: (sentBytes: number, totalBytes: number) => void } = {},
): Promise<void> {
  const gitDir = `${workspace.path}/.git`
  const evidence = evidenceFolder(workspace)
  const common: WorkspaceRunOptions = { cwd: '/', ...(options.signal === undefined ? {} : { signal: options.signal }) }
  await prepareFolders(workspace, prepared, common)
  await runChecked(workspace, 'receiving the repository', [
    'sh', '-c', RECEIVE_SCRIPT, 'sh', evidence, pack.name, String(pack.packBytes), String(pack.indexBytes), gitDir,
  ], { ...common, stdin: pack.open(options.onProgress) })
  await runChecked(workspace, 'checking out the base', [
    'sh', '-c', CHECK_OUT_SCRIPT, 'sh', prepared.base.tree, workspace.path, `${evidence}/${BASE_INDEX}`, `${evidence}/${BASE_MARKER}`,
  ], { ...common, env: privateEnvironment({ gitDir: evidence, workTree: workspace.path, index: `${evidence}/install.index` }) })
  const own = { ...common, cwd: workspace.path, env: privateEnvironment({ gitDir, workTree: workspace.path }) }
  await writeRefs(workspace, prepared, own)
  await writeSettings(workspace, prepared, own)
  const tree = prepared.isDirty ? `${prepared.head}^{tree}` : prepared.base.tree
  await runChecked(workspace, 'writing the index', [
    'sh', '-c', INDEX_SCRIPT, 'sh', tree, `${evidence}/${BASE_INDEX}`, prepared.base.tree,
  ], own)
  await recordTips(workspace, prepared.base, options.signal)
}

async function prepareFolders(workspace: Workspace, prepared: PreparedBase, common: WorkspaceRunOptions): Promise<void> {
  const { shallow } = prepared.history
  const result = await workspace.run([
    'sh', '-c', PREPARE_SCRIPT, 'sh', workspace.path, evidenceFolder(workspace), privateConfig(objectFormatOf(prepared.base)),
    BYTE_WISE_ATTRIBUTES, prepared.excludes, shallow.length === 0 ? '' : `${shallow.join('\n')}\n`,
  ], common)
  if (result.exitCode === 0) return
  const words = result.stderr.toString('utf8').trim().slice(-300)
  if (result.exitCode === 65) {
    throw new Kosa8Error('SANDBOX_EXISTS', `there is something in ${workspace.path} of the sandbox already`, {
      hint: 'use a new sandbox for this repository',
    })
  }
  throw new Kosa8Error('GUEST_COMMAND_FAILED', `preparing ${workspace.path} failed in the guest: ${words}`)
}

async function writeRefs(workspace: Workspace, prepared: PreparedBase, own: WorkspaceRunOptions): Promise<void> {
  const { head, branch, history } = prepared
  const refs = new Map(history.refs.map(({ name, oid }) => [name, oid]))
  if (branch !== null) refs.set(`refs/heads/${branch}`, head)
  const commands = [...refs].map(([name, oid]) => `update ${name} ${oid}\n`).join('')
  if (refs.size > 0) await runChecked(workspace, 'git update-ref', ['git', 'update-ref', '--no-deref', '--stdin'], { ...own, stdin: commands })
  const argv = branch === null
    ? ['git', 'update-ref', '--no-deref', 'HEAD', head]
    : ['git', 'symbolic-ref', 'HEAD', `refs/heads/${branch}`]
  await runChecked(workspace, 'git HEAD', argv, own)
}

/** The user's name, mail and remotes, so that a strategy can commit and see where the code came from. */
async function writeSettings(workspace: Workspace, prepared: PreparedBase, own: WorkspaceRunOptions): Promise<void> {
  const last = new Map<string, string[]>()
  for (const [key, value] of prepared.settings) {
    const isList = /^remote\..*\.(url|fetch)$/.test(key)
    last.set(key, isList ? [...last.get(key) ?? [], value] : [value])
  }
  const text = [...last].flatMap(([key, values]) => values.map((value) => formatSetting(key, value))).join('')
  await runChecked(workspace, 'writing .git/config', ['sh', '-c', 'cat >> .git/config'], { ...own, stdin: text })
}

function formatSetting(key: string, value: string): string {
  const [section, name] = [key.slice(0, key.indexOf('.')), key.slice(key.lastIndexOf('.') + 1)]
  const sub = key.slice(section.length + 1, Math.max(section.length + 1, key.length - name.length - 1))
  const quote = (text: string): string => `"${text.replace(/[\\"]/g, '\\$&').replace(/\n/g, '\\n')}"`
  return `[${section}${sub === '' ? '' : ` ${quote(sub)}`}]\n\t${name} = ${quote(value)}\n`
}
