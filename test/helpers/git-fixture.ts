/**
 * Real repositories in temporary folders, and a trial's way through our git code without a machine.
 */
import { execFileSync } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { onTestFinished } from 'vitest'
import { prepareBase, type PreparedBase } from '../../src/git/base.js'
import { captureBase } from '../../src/git/capture.js'
import { collectDiff } from '../../src/git/collect.js'
import { installWorkspace } from '../../src/git/install.js'
import { packBase } from '../../src/git/pack.js'
import { openRepository, type Repository } from '../../src/git/repository.js'
import type { StageLimits } from '../../src/git/stage.js'
import type { Workspace } from '../../src/git/workspace.js'
import type { TrialDiff } from '../../src/model/diff.js'
import type { Base } from '../../src/model/run.js'
import { createLocalWorkspace } from './local-workspace.js'

/** Environment of the user and of a strategy: an identity, fixed dates, no settings of this machine. */
export const PLAIN_ENVIRONMENT = {
  PATH: process.env['PATH'] ?? '/usr/bin:/bin', HOME: '/nonexistent', GIT_CONFIG_GLOBAL: '/dev/null', GIT_CONFIG_NOSYSTEM: '1', LC_ALL: 'C.UTF-8',
  GIT_AUTHOR_DATE: '2024-05-01T10:00:00Z', GIT_COMMITTER_DATE: '2024-05-01T10:00:00Z',
}

/** Runs a shell script in a folder as a user would; returns its standard output. */
export function shell(folder: string, script: string, env: Record<string, string> = {}): string {
  return execFileSync('sh', ['-euc', script], {
    cwd: folder, env: { ...PLAIN_ENVIRONMENT, ...env }, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'], maxBuffer: 64 * 1024 * 1024,
  })
}

/** A temporary folder that goes away with the test. */
export async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'kosa8-test-git-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  return folder
}

/** A repository at `<top>/repo` with one commit of what `script` makes. */
export async function makeRepository(script: string): Promise<{ top: string; folder: string }> {
  const top = await temporaryFolder()
  const folder = path.join(top, 'repo')
  shell(top, `git init -q -b main repo; cd repo; git config user.name 'Some User'; git config user.email user@example.invalid
${script}
git add -A; git commit -q --allow-empty -m start`)
  return { top, folder }
}

/** A repository installed in a workspace beside it, checkpoint taken, ready for an approach. */
export interface Trial {
  top: string
  folder: string
  repository: Repository
  workspace: Workspace
  prepared: PreparedBase
  base: Base
  /** Runs a script in the workspace as the approach. */
  act(script: string): string
  collect(options?: { limits?: Partial<StageLimits>; label?: string; includeIgnored?: boolean }): Promise<TrialDiff>
}

/** Everything up to the checkpoint; `setup` runs in the workspace before it. */
export async function startTrial(script: string, setup = ''): Promise<Trial> {
  const { top, folder } = await makeRepository(script)
  return startTrialOf(top, folder, setup)
}

/** As {@link startTrial}, for a repository that is there. */
export async function startTrialOf(top: string, folder: string, setup = ''): Promise<Trial> {
  const repository = await openRepository(folder)
  const prepared = await prepareBase(repository, { includeUncommitted: true })
  const workspace = createLocalWorkspace(path.join(top, 'work'), path.join(top, 'state'))
  const pack = await packBase(repository, prepared)
  await installWorkspace(workspace, prepared, pack).finally(() => pack.dispose())
  if (setup !== '') shell(workspace.path, setup)
  const { base } = await captureBase(workspace, repository, prepared.base, { run: 'r1' })
  return {
    top, folder, repository, workspace, prepared, base,
    act: (agent) => shell(workspace.path, agent),
    collect: ({ limits, label = 'a', includeIgnored = false } = {}) => collectDiff(workspace, repository, base, {
      run: 'r1', approach: 'a', label, repeat: 1, patchFile: path.join(top, 'result.patch'), patch: 'trials/a/1/result.patch', includeIgnored,
      ...(limits === undefined ? {} : { limits }),
    }),
  }
}

/** Status and path of each change, as `git diff --name-status` would list them. */
export function nameStatus(diff: Pick<TrialDiff, 'changes'>): string[] {
  return diff.changes.map((change) => `${change.status} ${change.oldPath === undefined ? '' : `${change.oldPath} -> `}${change.path}`)
}

/** Applies the stored patch to a fresh checkout of the base; returns the tree that comes out. */
export function treeOfAppliedPatch(trial: Trial): string {
  return shell(trial.top, `rm -rf fresh; git clone -q --no-checkout repo fresh; cd fresh
git fetch -q origin ${trial.base.commit}:refs/heads/base 2>/dev/null || git fetch -q ../repo '+refs/kosa8/*:refs/kosa8/*'
git -c core.autocrlf=false checkout -q --detach ${trial.base.commit}
if [ -s ../result.patch ]; then git apply --index --binary --whitespace=nowarn ../result.patch; fi
git write-tree`).trim()
}

/** Everything of a repository but its objects and our own refs, to see that nothing changed. */
export function fingerprint(folder: string): string {
  return shell(folder, `git for-each-ref | grep -v refs/kosa8/ || true
find . -path ./.git/objects -prune -o -path ./.git/refs/kosa8 -prune -o -type f -print0 | sort -z | xargs -0 sha256sum
find . -path ./.git/objects -prune -o -path ./.git/refs -prune -o -printf '%p %m %T@ %l\\n' | sort
find .git/refs -not -path '*kosa8*' | sort`)
}
