/**
 * The commits that the refs of the guest's own `.git` name, now or at the checkpoint.
 *
 * Owns: reading them, as remarks only: the diff never depends on them. Git reads that folder's configuration
 * here, so only commands run that start nothing, with everything that could be started switched off.
 */

/** Commits named by the guest's refs; everything empty when its `.git` cannot be read. */
export interface GuestRefs {
  head: string | null
  heads: string[]
  remotes: string[]
}

/** Prints HEAD as it is written, the refs, at most some thousand, and what was fetched. */
export const REFS_SCRIPT = `
g=$GIT_WORK_TREE/.git; line=
if [ -f "$g/HEAD" ] && [ ! -L "$g/HEAD" ]; then IFS= read -r line < "$g/HEAD"; fi
printf 'HEAD %s\\n' "$line"
GIT_DIR=$g git for-each-ref --count=10000 --format='%(objectname) %(refname)' refs/heads refs/remotes
if [ -f "$g/FETCH_HEAD" ]; then head -n 1000 "$g/FETCH_HEAD"; fi
`

const REF_LINE = /^([0-9a-f]{40,64})(?: (refs\/.*)|\t.*)$/

/** Reads what {@link REFS_SCRIPT} printed; lines that make no sense are passed over. */
export function parseRefs(output: Buffer): GuestRefs {
  const lines = output.toString('latin1').split('\n')
  const refs: GuestRefs = { head: null, heads: [], remotes: [] }
  const byName = new Map<string, string>()
  for (const line of lines) {
    const [, oid, name] = REF_LINE.exec(line) ?? []
    if (oid === undefined) continue
    if (name?.startsWith('refs/heads/') === true) refs.heads.push(oid)
    else refs.remotes.push(oid)
    if (name !== undefined) byName.set(name, oid)
  }
  const written = lines.find((line) => line.startsWith('HEAD '))?.slice('HEAD '.length) ?? ''
  const target = written.startsWith('ref: ') ? byName.get(written.slice('ref: '.length).trim()) : written.trim()
  refs.head = target !== undefined && /^[0-9a-f]{40,64}$/.test(target) ? target : null
  return refs
}
