/**
 * How much of the history goes to a guest.
 *
 * Owns: the decision. Small repositories go whole, with every branch, tag and remote-tracking branch; of large
 * ones only the last commit goes, and the report says so.
 */
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import type { Base } from '../model/run.js'
import { runGit, tryGit } from './host-git.js'
import { placeOf, type Repository } from './repository.js'

/** What is packed for a guest. */
export interface HistoryPlan {
  depth: 'full' | 'shallow'
  /** Commits whose parents the guest does not get; lines of its `shallow` file. */
  shallow: string[]
  /** Further refs the guest gets. */
  refs: { name: string; oid: string }[]
  /** Revisions to pack with everything they reach. */
  tips: string[]
  notes: string[]
}

/** Up to this many bytes of objects a repository is uploaded whole: some seconds on an emulated machine. */
export const FULL_HISTORY_BYTES_MAX = 128 * 1024 * 1024
const REFS_MAX = 5_000

/** Decides by the size of the repository's objects, packed and loose. */
export async function planHistory(
  repository: Repository, head: string, base: Base, fullBytesMax: number,
): Promise<HistoryPlan> {
  const sizeBytes = await measureObjects(repository)
  const isPartial = (await tryGit(placeOf(repository), ['config', '--get-regexp', '^remote\\..*\\.promisor$'])).code === 0
  const refs = isPartial || sizeBytes > fullBytesMax ? null : await listRefs(repository)
  const tips = [...new Set([head, base.commit])]
  if (refs !== null) {
    return { depth: 'full', shallow: await readShallow(repository), refs, tips: [...new Set([...tips, ...refs.map((ref) => ref.oid)])], notes: [] }
  }
  const size = sizeBytes > fullBytesMax ? `it has ${Math.round(sizeBytes / 1024 / 1024)} MiB of objects` : `it has more than ${REFS_MAX} refs`
  const reason = isPartial ? 'it is a partial clone' : size
  return {
    depth: 'shallow', shallow: [head], refs: [], tips,
    notes: [`history uploaded shallow: only the last commit of the repository is in the guest, ${reason}`],
  }
}

async function measureObjects(repository: Repository): Promise<number> {
  const text = (await runGit(placeOf(repository), ['count-objects', '-v'])).toString('utf8')
  const kibibytes = (key: string): number => Number(new RegExp(`^${key}: (\\d+)$`, 'm').exec(text)?.[1] ?? 0)
  return (kibibytes('size') + kibibytes('size-pack')) * 1024
}

/** Null when there are too many to take along. */
async function listRefs(repository: Repository): Promise<HistoryPlan['refs'] | null> {
  const output = await runGit(placeOf(repository), [
    'for-each-ref', `--count=${REFS_MAX + 1}`, '--format=%(objectname) %(refname) %(symref)', 'refs/heads', 'refs/tags', 'refs/remotes',
  ])
  const refs: HistoryPlan['refs'] = []
  const lines = output.toString('utf8').split('\n').filter((line) => line !== '')
  for (const line of lines) {
    const [oid, name, symref] = line.split(' ')
    if (symref === '' || symref === undefined) refs.push({ oid: oid!, name: name! })
  }
  return lines.length > REFS_MAX ? null : refs
}

async function readShallow(repository: Repository): Promise<string[]> {
  const text = await readFile(path.join(repository.commonDir, 'shallow'), 'utf8').catch(() => '')
  return text.split('\n').filter((line) => line !== '')
}
