/**
 * Remarks that explain a diff: whose commits, what was left unfinished, repositories within, what was hidden.
 */
import { describe, expect, it } from 'vitest'
import { nameStatus, shell, startTrial, startTrialOf, makeRepository, treeOfAppliedPatch } from '../helpers/git-fixture.js'

const UPSTREAM_MOVES = `rm -rf ../other; git clone -q ../upstream.git ../other; cd ../other; git config user.name o; git config user.email o@x
echo 2 > other.txt; git commit -qam upstream; git push -q origin main; cd ../work`
const WITH_UPSTREAM = 'echo 1 > app.txt; echo 1 > other.txt'

async function startWithUpstream(): ReturnType<typeof startTrialOf> {
  const { top, folder } = await makeRepository(WITH_UPSTREAM)
  shell(folder, 'git clone -q --bare . ../upstream.git; git remote add origin ../upstream.git; git fetch -q origin; git branch -q -u origin/main')
  return startTrialOf(top, folder)
}

describe('remarks on a diff', () => {
  it('do not arise from a fetch alone', async () => {
    const trial = await startWithUpstream()
    trial.act(`${UPSTREAM_MOVES}; echo 2 > app.txt; git fetch -q origin`)
    expect(await trial.collect()).toMatchObject({ files: 1, notes: [] })
  })

  it('count commits of others that a rebase took in, against the same base', async () => {
    const trial = await startWithUpstream()
    trial.act(`${UPSTREAM_MOVES}; echo 2 > app.txt; git commit -qam mine; git fetch -q origin; git rebase -q origin/main`)
    const diff = await trial.collect()
    expect(nameStatus(diff)).toEqual(['M app.txt', 'M other.txt'])
    expect(diff.notes).toEqual(['took in 1 upstream commit'])
    expect(shell(trial.folder, `git rev-parse ${diff.ref}^`).trim()).toBe(trial.base.commit)
  })

  it.each([
    ['merge', 'git merge -q other || true', 'merge in progress', []],
    ['rebase', 'git rebase -q other || true', 'rebase in progress', ['took in 1 upstream commit']],
    ['cherry-pick', 'git cherry-pick other >/dev/null 2>&1 || true', 'cherry-pick in progress', []],
    ['revert', 'echo z > f; git commit -qam z; git revert --no-edit HEAD~1 >/dev/null 2>&1 || true', 'revert in progress', []],
  ])('name an unfinished %s with the files in conflict; the diff is the ordinary one', async (_, script, note, more) => {
    const { top, folder } = await makeRepository('printf "a\\nb\\nc\\n" > f; echo k > k')
    shell(folder, 'git checkout -q -b other; printf "a\\nX\\nc\\n" > f; git commit -qam other; git checkout -q main')
    const trial = await startTrialOf(top, folder)
    trial.act(`printf "a\\nY\\nc\\n" > f; git commit -qam mine; (${script}) 2>/dev/null >&2`)
    const diff = await trial.collect()
    expect(nameStatus(diff)).toEqual(['M f'])
    expect(diff.conflicts).toEqual(['f'])
    expect(diff.notes).toEqual([note, ...more])
    expect(treeOfAppliedPatch(trial)).toBe(diff.tree)
  })

  it('name nested repositories, whose files are ordinary additions', async () => {
    const trial = await startTrial('echo x > top; echo "*.log" > .gitignore')
    trial.act(`mkdir web; cd web; git init -q; git config user.name n; git config user.email n@x; echo dist > .gitignore; mkdir js dist
echo 1 > js/app; echo 2 > dist/out; echo 3 > noise.log; git add -A; git commit -qm scaffold; mkdir deep; cd deep; git init -q; echo 4 > in; cd ../..; mkdir unborn; git init -q unborn; echo 5 > unborn/u`)
    const diff = await trial.collect()
    expect(nameStatus(diff)).toEqual(['A unborn/u', 'A web/.gitignore', 'A web/deep/in', 'A web/js/app'])
    expect(diff.notes).toEqual(['nested repository at unborn/', 'nested repository at web/', 'nested repository at web/deep/'])
    expect(treeOfAppliedPatch(trial)).toBe(diff.tree)
  })
})

describe('files left out', () => {
  it('are those of a second checkout of the repository, which is named', async () => {
    const trial = await startTrial('echo 1 > a')
    trial.act('git worktree add -q -b side trees/side; echo 2 > trees/side/a')
    const diff = await trial.collect()
    expect(nameStatus(diff)).toEqual([])
    expect(diff.omitted).toEqual([{ path: 'trees/side/', bytes: 0, reason: 'linked worktree of a repository, not collected' }])
  })

  it('are taken in on demand, links and files alike', async () => {
    const trial = await startTrial('echo build > .gitignore')
    trial.act('mkdir build; for i in $(seq 30); do echo $i > build/$i; done; ln -s 1 build/link; mkfifo build/fifo')
    const diff = await trial.collect({ includeIgnored: true })
    expect(diff.files).toBe(31)
    expect(diff.omitted).toEqual([{ path: 'build/fifo', bytes: 0, reason: 'not a regular file (FIFO)' }])
  })

  it('are listed with size, and marked when only a rule of the approach hides them', async () => {
    const trial = await startTrial('printf "build/\\n.env\\n" > .gitignore; echo t > test.sh')
    trial.act('mkdir build; echo {} > build/schema.json; echo M > .env; echo helper.sh >> .gitignore; echo h > helper.sh')
    const diff = await trial.collect()
    expect(nameStatus(diff)).toEqual(['M .gitignore'])
    expect(diff.omitted).toEqual([
      { path: '.env', bytes: 2, reason: 'ignored' }, { path: 'build/schema.json', bytes: 3, reason: 'ignored' },
      { path: 'helper.sh', bytes: 2, reason: 'ignored by a rule the approach added' },
    ])
  })

  it('are not those that were there at the checkpoint, and a full folder is one entry', async () => {
    const trial = await startTrial('echo node_modules > .gitignore', 'mkdir -p node_modules/old; for i in $(seq 30); do echo $i > node_modules/old/$i; done')
    trial.act('mkdir -p node_modules/new; for i in $(seq 25); do echo 1 > node_modules/new/$i; done; echo changed > node_modules/old/1')
    const diff = await trial.collect()
    expect(diff.omitted).toEqual([{ path: 'node_modules/', bytes: 58, reason: 'ignored, 26 files' }])
  })

  it('follow the ignore rules the user keeps outside the tree, not those the approach puts into .git', async () => {
    const { top, folder } = await makeRepository('echo 1 > a')
    shell(folder, 'echo mine.txt >> .git/info/exclude; echo m > mine.txt')
    const trial = await startTrialOf(top, folder)
    expect(trial.prepared.isDirty).toBe(false)
    trial.act('echo new > mine.txt; echo hidden.txt >> .git/info/exclude; echo h > hidden.txt')
    const diff = await trial.collect()
    expect(nameStatus(diff)).toEqual(['A hidden.txt'])
    expect(diff.omitted).toEqual([{ path: 'mine.txt', bytes: 4, reason: 'ignored' }])
  })
})
