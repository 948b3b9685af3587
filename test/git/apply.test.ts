/**
 * Results compared and brought into a branch.
 */
import { describe, expect, it } from 'vitest'
import { applyResult, type ApplyRequest } from '../../src/git/apply.js'
import { diffBetween, findOverlap } from '../../src/git/compare-results.js'
import { fingerprint, nameStatus, shell, startTrial, startTrialOf, makeRepository, type Trial } from '../helpers/git-fixture.js'

async function resultOf(trial: Trial, script: string): Promise<ApplyRequest> {
  trial.act(script)
  const diff = await trial.collect()
  return { commit: diff.commit, base: trial.base, fallbackBranch: 'kosa8/r1/a' }
}

describe('applying a result', () => {
  it('makes a branch with one commit on top of HEAD, by the user, and leaves everything else alone', async () => {
    const trial = await startTrial('seq 10 > a')
    const request = await resultOf(trial, 'sed -i s/5/five/ a; printf "\\000" > bin; chmod +x a')
    shell(trial.folder, 'echo more > b; git add b; git commit -qm later; echo loose >> a')
    const before = fingerprint(trial.folder).split('\n')
    const applied = await applyResult(trial.repository, request)
    expect(applied.branch).toBe('kosa8/r1/a')
    expect(shell(trial.folder, 'git log --format="%an %s" kosa8/r1/a').split('\n').slice(0, 2))
      .toEqual(['Some User kosa8: a, repeat 1', 'Some User later'])
    expect(shell(trial.folder, 'git diff --name-status main kosa8/r1/a')).toBe('M\ta\nA\tbin\n')
    expect(fingerprint(trial.folder).split('\n').filter((line) => !before.includes(line) && !line.includes('kosa8'))).toEqual([])
    expect(shell(trial.folder, 'git status --porcelain')).toBe(' M a\n')
  })

  it('takes another name when the branch is there already, and the one that is asked for', async () => {
    const trial = await startTrial('echo 1 > a')
    const request = await resultOf(trial, 'echo 2 > a')
    expect((await applyResult(trial.repository, request)).branch).toBe('kosa8/r1/a')
    expect((await applyResult(trial.repository, request)).branch).toBe('kosa8/r1/a-2')
    expect((await applyResult(trial.repository, { ...request, branch: 'fix/it' })).branch).toBe('fix/it')
  })

  it('adds to a branch that exists, unless that is checked out', async () => {
    const trial = await startTrial('echo 1 > a')
    const request = await resultOf(trial, 'echo 2 > a')
    shell(trial.folder, 'git checkout -q -b dev; echo d > d; git add d; git commit -qm dev; git checkout -q main')
    await applyResult(trial.repository, { ...request, branch: 'dev' })
    expect(shell(trial.folder, 'git log --format=%s dev').split('\n').slice(0, 2)).toEqual(['kosa8: a, repeat 1', 'dev'])
    await expect(applyResult(trial.repository, { ...request, branch: 'main' })).rejects.toMatchObject({ code: 'REPOSITORY_DIRTY' })
  })

  it('leaves uncommitted work of the base out of the branch', async () => {
    const { top, folder } = await makeRepository('echo 1 > a; echo 1 > b')
    shell(folder, 'echo uncommitted > b')
    const trial = await startTrialOf(top, folder)
    await applyResult(trial.repository, await resultOf(trial, 'echo 2 > a'))
    expect(shell(folder, 'git diff --name-status main kosa8/r1/a')).toBe('M\ta\n')
  })

  it('names the files in conflict and leaves nothing behind', async () => {
    const trial = await startTrial('echo 1 > a; echo 1 > b; echo 1 > c')
    const request = await resultOf(trial, 'echo 2 > a; rm b; echo 2 > c')
    shell(trial.folder, 'echo 3 > a; echo 3 > b; git commit -qam other')
    const before = fingerprint(trial.folder)
    await expect(applyResult(trial.repository, request)).rejects.toMatchObject({ code: 'APPLY_CONFLICT', details: { files: ['a', 'b'] } })
    expect(fingerprint(trial.folder)).toBe(before)
    expect(shell(trial.folder, 'git worktree list | wc -l').trim()).toBe('1')
  })

  it('starts no merge driver that attributes of the result name', async () => {
    const trial = await startTrial('seq 10 > a')
    shell(trial.folder, `git config merge.mine.driver "touch ${trial.top}/canary; exit 0"`)
    const request = await resultOf(trial, 'echo "* merge=mine" > .gitattributes; sed -i s/2/two/ a')
    shell(trial.folder, 'echo "* merge=mine" > .gitattributes; sed -i s/9/nine/ a; git add .; git commit -qm x')
    await applyResult(trial.repository, request)
    expect(shell(trial.top, 'ls')).not.toContain('canary')
    expect(shell(trial.folder, 'git show kosa8/r1/a:a | tr "\\n" " "')).toBe('1 two 3 4 5 6 7 8 nine 10 ')
  })

  it.each(['-x', 'a b', 'a..b', '@{-1}'])('refuses %j as a branch', async (branch) => {
    const trial = await startTrial('echo 1 > a')
    const request = await resultOf(trial, 'echo 2 > a')
    await expect(applyResult(trial.repository, { ...request, branch })).rejects.toMatchObject({ code: 'USAGE' })
  })
})

describe('comparing results', () => {
  it('gives changes and patch from one to the other', async () => {
    const trial = await startTrial('echo 1 > a; echo 1 > b')
    trial.act('echo 2 > a')
    const one = await trial.collect({ label: 'one' })
    trial.act('echo 1 > a; echo 2 > b')
    const two = await trial.collect({ label: 'two' })
    const diff = await diffBetween(trial.repository, one.commit, two.commit)
    expect(nameStatus(diff)).toEqual(['M a', 'M b'])
    expect(diff.patch.toString()).toContain('-2\n+1\n')
  })

  it('fails by name for a commit that is gone', async () => {
    const trial = await startTrial('echo 1 > a')
    await expect(diffBetween(trial.repository, trial.base.commit, '1'.repeat(40))).rejects.toMatchObject({ code: 'RUN_UNKNOWN' })
    await expect(diffBetween(trial.repository, trial.base.commit, '--output=/tmp/x')).rejects.toMatchObject({ code: 'RUN_UNKNOWN' })
  })

  it('lists paths that more than one result touches, old names of renames included', () => {
    const change = (path: string, oldPath?: string) => ({
      status: 'M' as const, path, oldMode: null, newMode: null, insertions: 0, deletions: 0, ...(oldPath === undefined ? {} : { oldPath }),
    })
    expect(findOverlap([
      { label: 'a', changes: [change('x'), change('y')] }, { label: 'b', changes: [change('new', 'x')] }, { label: 'c', changes: [change('z')] },
    ])).toEqual(new Map([['x', ['a', 'b']]]))
  })
})
