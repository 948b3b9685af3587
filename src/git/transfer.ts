/**
 * New objects from a guest into a scratch repository on the host, and the checks they must pass there.
 *
 * Owns: the size bound, git's own checks of each object and of what they point to, and our checks of the
 * paths. Nothing that failed here gets into the user's repository.
 */
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { Base } from '../model/run.js'
import type { Evidence } from './evidence.js'
import { gitError, runGit, tryGit } from './host-git.js'
import { isUnsafePath, showPath, splitRecords } from './paths.js'
import { privateEnvironment } from './private-git.js'
import type { Scratch } from './scratch.js'
import { runChecked, type Workspace, type WorkspaceRunOptions } from './workspace.js'

/** Bounds of a transfer. */
export interface TransferLimits {
  totalBytesMax: number
  entriesMax: number
}

/** Room for the trees of a pack; what compression adds to incompressible files is far below an eighth. */
const TREES_BYTES_MAX = 8 * 1024 * 1024

/**
 * Brings a tree that the guest's evidence folder holds, with every object new since the base.
 * @throws Kosa8Error EVIDENCE_REFUSED when it is too large, damaged, or holds paths that have no place in a tree.
 */
export async function receiveTree(
  workspace: Workspace, evidence: Evidence, scratch: Scratch, request: { base: Base; tree: string; limits: TransferLimits },
): Promise<void> {
  const { base, tree, limits } = request
  // What the host has already need not come, least of all from there.
  if (tree === base.tree) return
  await streamPack(workspace, evidence, scratch, request)
  const kind = await tryGit(scratch.place, ['cat-file', '-t', tree])
  if (kind.stdout.toString('latin1').trim() !== 'tree') throw refused('the guest did not send the tree it named')
  await checkEntries(scratch, base, tree, limits)
}

async function streamPack(
  workspace: Workspace, evidence: Evidence, scratch: Scratch, request: { base: Base; tree: string; limits: TransferLimits },
): Promise<void> {
  const { base, tree, limits } = request
  const { signal, gitDir } = evidence.place
  const common = { cwd: '/', env: privateEnvironment({ gitDir }), ...(signal === undefined ? {} : { signal }) }
  const known = await findKnown(workspace, evidence, scratch, base, common)
  const stream = await workspace.stream(['git', 'pack-objects', '--revs', '--stdout', '-q', '--delta-base-offset'], {
    ...common, stdin: known === null ? `${tree}\n` : `${tree}\n^${known}^{tree}\n`,
  })
  const maximum = Math.ceil(limits.totalBytesMax * 9 / 8) + TREES_BYTES_MAX
  const stored = await tryGit(scratch.place, ['index-pack', '--stdin', '--strict', `--max-input-size=${maximum}`], {
    stdin: stream.stdout, signal, cwd: '/',
  }).finally(() => stream.stdout.destroy())
  if (stored.code !== 0) {
    const error = gitError(['index-pack'], stored)
    if (error.code === 'DISK_FULL') throw error
    throw refused(`git refuses the objects from the guest: ${stored.stderr.toString('utf8').slice(-300).replace(/[\x00-\x1f\x7f]+/g, ' ').trim()}`)
  }
  const { exitCode, stderr } = await stream.ended
  if (exitCode !== 0) throw refused(`packing the changes failed in the guest (exit ${exitCode}): ${stderr.slice(-300).replace(/[\x00-\x1f\x7f]+/g, ' ')}`)
}

/** How many commits below a base may be missing in a guest that was at an earlier checkpoint. */
const CHAIN_MAX = 16

/** The newest commit, from the base downwards, that the guest has too; null when it has none of the last few. */
async function findKnown(
  workspace: Workspace, evidence: Evidence, scratch: Scratch, base: Base, common: WorkspaceRunOptions,
): Promise<string | null> {
  const chain = await runGit(scratch.place, ['rev-list', '--first-parent', `--max-count=${CHAIN_MAX}`, base.commit])
  const oids = chain.toString('latin1').split('\n').filter((oid) => oid !== '')
  if (oids.includes(evidence.recordedBase)) return evidence.recordedBase
  const answer = await runChecked(workspace, 'git cat-file', ['git', 'cat-file', '--batch-check'], { ...common, stdin: chain })
  const present = new Set(answer.toString('latin1').split('\n').filter((line) => line.includes(' commit ')).map((line) => line.split(' ')[0]))
  return oids.find((oid) => present.has(oid)) ?? null
}

const MODES = new Set(['000000', '100644', '100755', '120000', '160000'])

async function checkEntries(scratch: Scratch, base: Base, tree: string, limits: TransferLimits): Promise<void> {
  const raw = splitRecords(await runGit(scratch.place, ['diff-tree', '-r', '-z', '--raw', '--no-renames', base.tree, tree], {
    outputBytesMax: 256 * 1024 * 1024,
  }))
  let added = 0
  for (let at = 0; at + 1 < raw.length; at += 2) {
    const [oldMode, newMode] = raw[at]!.toString('latin1').slice(1).split(' ')
    const path = raw[at + 1]!
    if (newMode === '000000') continue
    if (oldMode === '000000') added += 1
    if (!MODES.has(newMode!)) throw refused(`${showPath(path)} has the mode ${newMode}`)
    if (isUnsafePath(path)) throw refused(`the path ${showPath(path)} has no place in a tree`)
  }
  // Links and files are counted alike here; staging bounds files, so twice its bound is never exceeded honestly.
  if (added > 2 * limits.entriesMax + 10_000) throw refused(`${added} new paths are too many`)
}

function refused(message: string): Kosa8Error {
  return new Kosa8Error('EVIDENCE_REFUSED', message)
}
