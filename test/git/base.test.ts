/**
 * The base: what is taken from the user's repository, what arrives in the guest, and what stays untouched.
 */
import { readFile, stat } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { prepareBase } from '../../src/git/base.js'
import { captureBase } from '../../src/git/capture.js'
import { collectDiff } from '../../src/git/collect.js'
import { installWorkspace, type InstallProgress } from '../../src/git/install.js'
import { packBase } from '../../src/git/pack.js'
import { listRunRefs, openRepository, refName, removeRunRefs } from '../../src/git/repository.js'
import type { Workspace } from '../../src/git/workspace.js'
import type { TrialDiff } from '../../src/model/diff.js'
import { createLocalWorkspace } from '../helpers/local-workspace.js'
import { fingerprint, makeRepository, nameStatus, shell, startTrial, startTrialOf, temporaryFolder, type Trial } from '../helpers/git-fixture.js'

const ls = (folder: string, tree: string): string[] =>
  shell(folder, `git ls-tree -r --name-only ${tree}`).split('\n').filter((line) => line !== '')

describe('opening a repository', () => {
  it.each([
    ['a folder without one', 'mkdir repo', 'is not in a git repository'],
    ['a bare one', 'git init -q --bare repo', 'is a bare repository'],
    ['one without a commit', 'git init -q repo', 'has no commit yet'],
    ['no folder at all', 'true', 'does not exist'],
    ['one that is damaged', 'git init -q repo; echo "[broken" > repo/.git/config', 'git cannot read the repository'],
  ])('refuses %s with its name', async (_, script, words) => {
    const top = await temporaryFolder()
    shell(top, script)
    await expect(openRepository(path.join(top, 'repo'))).rejects.toMatchObject({
      code: 'REPOSITORY_INVALID', message: expect.stringContaining(words) as string, hint: expect.any(String) as string,
    })
  })

  it('finds the top from a folder below, and takes part in no surrounding git command', async () => {
    const { folder } = await makeRepository('mkdir -p a/b; echo 1 > a/b/c')
    process.env['GIT_DIR'] = '/nonexistent'
    try {
      expect((await openRepository(path.join(folder, 'a/b'))).topLevel).toBe(folder)
    } finally {
      delete process.env['GIT_DIR']
    }
  })

  it('works in a linked worktree, with that worktree\'s HEAD and changes', async () => {
    const { top, folder } = await makeRepository('echo 1 > a')
    shell(folder, 'git worktree add -q -b side ../tree; echo 2 > ../tree/a')
    const repository = await openRepository(path.join(top, 'tree'))
    const prepared = await prepareBase(repository, { includeUncommitted: true })
    expect(prepared).toMatchObject({ branch: 'side', isDirty: true })
    expect(shell(folder, `git show ${prepared.base.commit}:a`)).toBe('2\n')
  })

  it.runIf(process.getuid?.() === 0)('works for exactly one path that belongs to another user, and leaves no setting behind', async () => {
    const { top, folder } = await makeRepository('echo 1 > a')
    shell(folder, 'git worktree add -q -b side ../tree; chown -R 65534:65534 . ../tree')
    expect(() => shell(folder, 'git status')).toThrow(/dubious ownership/)
    for (const place of [folder, path.join(top, 'tree')]) {
      shell(place, 'echo 2 > a; echo n > n')
      const prepared = await prepareBase(await openRepository(place), { includeUncommitted: true })
      expect(shell(folder, `git ls-tree --name-only ${prepared.base.tree}`, { GIT_DIR: `${folder}/.git` })).toBe('a\nn\n')
    }
    expect(() => shell(folder, 'git status')).toThrow(/dubious ownership/)
  })
})

describe('the base', () => {
  it('is HEAD itself when nothing is uncommitted, or when only committed state is asked for', async () => {
    const { folder } = await makeRepository('echo 1 > a')
    const repository = await openRepository(folder)
    const clean = await prepareBase(repository, { includeUncommitted: true })
    expect(clean).toMatchObject({ isDirty: false, branch: 'main', notes: [], base: { commit: clean.head } })
    shell(folder, 'echo 2 > a')
    expect((await prepareBase(repository, { includeUncommitted: false })).base).toEqual(clean.base)
  })

  it('holds staged, loose and untracked work, not what is ignored; nothing of the repository changes', async () => {
    const { folder } = await makeRepository('echo "*.log" > .gitignore; for n in a b c d; do echo 1 > $n; done')
    shell(folder, 'echo 2 > a; git add a; echo 3 > b; rm c; mkdir new; echo n > new/n; echo l > x.log; chmod +x d; git stash list')
    const before = fingerprint(folder)
    const prepared = await prepareBase(await openRepository(folder), { includeUncommitted: true })
    expect(fingerprint(folder)).toBe(before)
    expect(ls(folder, prepared.base.tree)).toEqual(['.gitignore', 'a', 'b', 'd', 'new/n'])
    expect(shell(folder, `git rev-parse ${prepared.base.commit}^`).trim()).toBe(prepared.head)
    expect((await prepareBase(await openRepository(folder), { includeUncommitted: true })).base).toEqual(prepared.base)
  })

  it('starts neither hooks nor filters nor an fsmonitor of the repository, and holds the bytes on disk', async () => {
    const { top, folder } = await makeRepository(`printf 'a\\r\\nb\\r\\n' > crlf; echo big > x.bin
git config filter.lfs.clean "sed s/big/pointer/"; git config filter.lfs.smudge "sed s/pointer/big/"
printf '*.bin filter=lfs\\ncrlf text eol=crlf\\n' > .gitattributes`)
    shell(folder, `git config filter.lfs.clean "touch ${top}/canary-clean; cat"; git config core.fsmonitor "touch ${top}/canary-fsmonitor"
for h in pre-commit post-index-change post-commit reference-transaction; do printf '#!/bin/sh\\ntouch ${top}/canary-hook\\n' > .git/hooks/$h; chmod +x .git/hooks/$h; done; rm -f ${top}/canary-*`)
    expect(shell(folder, 'git cat-file blob HEAD:x.bin; git cat-file blob HEAD:crlf')).toBe('pointer\na\nb\n')
    const prepared = await prepareBase(await openRepository(folder), { includeUncommitted: true })
    expect(shell(folder, `git cat-file blob ${prepared.base.tree}:x.bin; git cat-file blob ${prepared.base.tree}:crlf`)).toBe('big\na\r\nb\r\n')
    expect(shell(top, 'ls')).toBe('repo\n')
  })

  it('takes a repository in the middle of a merge as its files are', async () => {
    const { folder } = await makeRepository('echo 1 > a; echo 1 > b')
    shell(folder, 'git checkout -q -b o; echo o > a; git commit -qam o; git checkout -q main; echo m > a; git commit -qam m; git merge -q o || true')
    const prepared = await prepareBase(await openRepository(folder), { includeUncommitted: true })
    expect(shell(folder, `git show ${prepared.base.tree}:a`)).toContain('<<<<<<<')
  })

  it('copes with a split index and with index entries of deleted folders', async () => {
    const { folder } = await makeRepository('mkdir d; echo 1 > d/a; echo 1 > b')
    shell(folder, 'git update-index --split-index; rm -r d; echo 2 > b')
    const prepared = await prepareBase(await openRepository(folder), { includeUncommitted: true })
    expect(ls(folder, prepared.base.tree)).toEqual(['b'])
  })

  it('says that submodules and too large files are not uploaded', async () => {
    const { folder } = await makeRepository('git init -q sub; git -C sub -c user.name=u -c user.email=u@x commit -q --allow-empty -m s')
    const prepared = await prepareBase(await openRepository(folder), { includeUncommitted: true })
    expect(prepared.notes).toEqual(['submodules are not uploaded, only their commits: sub'])
  })
})

describe('an installed workspace', () => {
  it('has the base as files byte by byte, HEAD and index of the user, and uncommitted work uncommitted', async () => {
    const { top, folder } = await makeRepository(`printf 'a\\r\\n' > crlf; echo '* text=auto eol=lf' > .gitattributes; echo r > run; chmod +x run; ln -s run link; echo s > s`)
    shell(folder, 'git checkout -q -b topic; echo 2 > run; git add run; echo n > new; rm s')
    const trial = await startTrialOf(top, folder)
    const listing = 'find . -path ./.git -prune -o -printf "%p %y %m %l\\n" | grep -v "^[.] " | sort; find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum'
    expect(trial.act(listing)).toBe(shell(folder, listing))
    expect(trial.act('git symbolic-ref HEAD; git rev-parse HEAD')).toBe(`refs/heads/topic\n${trial.prepared.head}\n`)
    expect(trial.act('git status --porcelain')).toBe(' M run\n D s\n?? new\n')
    expect(trial.act('git fsck --strict --no-dangling 2>&1')).toBe('')
    expect(nameStatus(await trial.collect())).toEqual([])
  })

  it('has the whole history, branches, tags and remotes of a small repository, without credentials', async () => {
    const { top, folder } = await makeRepository('echo 1 > a')
    shell(folder, `echo 2 > a; git commit -qam two; git tag v1; git tag -a v2 -m t; git branch other HEAD~1
git remote add origin https://me:secret@example.invalid/x.git; git update-ref refs/remotes/origin/main HEAD~1; git update-ref refs/kosa8/old/x/1 HEAD`)
    const trial = await startTrialOf(top, folder)
    expect(trial.act('git for-each-ref --format="%(refname)"').trim().split('\n'))
      .toEqual(['refs/heads/main', 'refs/heads/other', 'refs/remotes/origin/main', 'refs/tags/v1', 'refs/tags/v2'])
    expect(trial.act('git log --oneline | wc -l').trim()).toBe('2')
    expect(trial.act('git config user.name; git remote get-url origin; ! grep -r secret .git/config')).toBe('Some User\nhttps://example.invalid/x.git\n')
  })

  it('shares the pack with our evidence folder instead of storing it twice', async () => {
    const trial = await startTrial('echo 1 > a')
    const [own, evidence] = [`${trial.workspace.path}/.git`, `${trial.workspace.stateDirectory}/evidence`]
      .map((folder) => shell(folder, 'stat -c %i objects/pack/*.pack'))
    expect(own).toBe(evidence)
  })

  it('works from a shallow clone, and says nothing of history it never had', async () => {
    const { top, folder } = await makeRepository('echo 1 > a')
    shell(folder, 'echo 2 > a; git commit -qam two')
    shell(top, 'git clone -q --depth 1 file://$PWD/repo shallow; cd shallow; git config user.name u; git config user.email u@x; echo 3 > a')
    const trial = await startTrialOf(top, path.join(top, 'shallow'))
    trial.act('echo 4 > a; git commit -qam four')
    expect(nameStatus(await trial.collect())).toEqual(['M a'])
    expect(trial.act('git log --oneline | wc -l; git fsck --no-dangling 2>&1')).toBe('2\n')
  })

  it('gets the last commit only when the history is planned shallow', async () => {
    const { top, folder } = await makeRepository('echo 1 > a')
    shell(folder, 'echo 2 > a; git commit -qam two; echo 3 > a')
    const repository = await openRepository(folder)
    const prepared = await prepareBase(repository, { includeUncommitted: true, fullHistoryBytesMax: 0 })
    expect(prepared.notes).toEqual([expect.stringMatching(/^history uploaded shallow: /)])
    const workspace = createLocalWorkspace(path.join(top, 'work'), path.join(top, 'state'))
    const pack = await packBase(repository, prepared)
    await installWorkspace(workspace, prepared, pack)
    await pack.dispose()
    expect(shell(workspace.path, 'git log --oneline | wc -l; git status --porcelain; cat a; git fsck --no-dangling 2>&1')).toBe('1\n M a\n3\n')
  })

  it('is refused where something lies already, and leaves that alone', async () => {
    const { top, folder } = await makeRepository('echo 1 > a')
    shell(top, 'mkdir work; echo mine > work/mine')
    await expect(startTrialOf(top, folder)).rejects.toMatchObject({ code: 'SANDBOX_EXISTS' })
    expect(await readFile(path.join(top, 'work/mine'), 'utf8')).toBe('mine\n')
  })

  it('reports how much of the working tree is laid out, up to all of it', async () => {
    const { top, folder } = await makeRepository('for n in 1 2 3 4; do echo $n > f$n; done')
    const repository = await openRepository(folder)
    const prepared = await prepareBase(repository, { includeUncommitted: true })
    const local = createLocalWorkspace(path.join(top, 'work'), path.join(top, 'state'))
    const impatient: Workspace = {
      ...local, run: (argv, options = {}) => local.run(argv, { ...options, env: { ...options.env, GIT_PROGRESS_DELAY: '0' } }),
    }
    const pack = await packBase(repository, prepared)
    const seen: InstallProgress[] = []
    await installWorkspace(impatient, prepared, pack, { onProgress: (progress) => seen.push(progress) })
    await pack.dispose()
    expect(seen.at(-1)).toEqual({ part: 'checkingOut', percent: 100 })
  })

  it('reports how much of the upload is done, up to all of it', async () => {
    const { folder } = await makeRepository('head -c 600000 /dev/urandom > a')
    const repository = await openRepository(folder)
    const pack = await packBase(repository, await prepareBase(repository, { includeUncommitted: true }))
    const seen: [number, number][] = []
    await pack.open((sent, total) => seen.push([sent, total])).forEach(() => undefined)
    expect(seen.at(-1)).toEqual([pack.packBytes + pack.indexBytes, pack.packBytes + pack.indexBytes])
    await pack.dispose()
  })
})

describe('the base at the checkpoint', () => {
  it('is the installed one when setup changed no file', async () => {
    const trial = await startTrial('echo node_modules > .gitignore', 'mkdir node_modules; echo 1 > node_modules/x')
    expect(trial.base).toEqual(trial.prepared.base)
    expect(await listRunRefs(trial.repository, 'r1')).toEqual([{ name: 'refs/kosa8/r1/_base', commit: trial.base.commit }])
  })

  it('is a commit on top of it, kept in the user\'s repository, when setup did; trials differ from that', async () => {
    const trial = await startTrial('echo 1 > a', 'echo generated > lock; echo 2 > a')
    expect(shell(trial.folder, `git diff --name-status ${trial.prepared.base.commit} refs/kosa8/r1/_base`)).toBe('M\ta\nA\tlock\n')
    trial.act('echo 3 > a')
    expect(nameStatus(await trial.collect())).toEqual(['M a'])
    expect(trial.act('git status --porcelain')).toBe(' M a\n?? lock\n')
  })

  it('can be taken again, and trials of an earlier checkpoint can be compared with it', async () => {
    const trial = await startTrial('echo 1 > a; seq 100 > b')
    shell(trial.top, 'cp -a work work.old; cp -a state state.old')
    trial.act('echo setup > a')
    const later = await captureBase(trial.workspace, trial.repository, trial.base, { run: 'r2' })
    expect(await captureBase(trial.workspace, trial.repository, trial.base, { run: 'r2' })).toEqual(later)
    shell(trial.top, 'rm -r work state; mv work.old work; mv state.old state; echo trial > work/a')
    const diff = await startedFrom({ ...trial, base: later.base })
    expect(nameStatus(diff)).toEqual(['M a'])
    expect(shell(trial.folder, `git show ${diff.commit}^:a ${diff.commit}:a`)).toBe('setup\ntrial\n')
  })
})

function startedFrom(trial: Trial): Promise<TrialDiff> {
  return collectDiff(trial.workspace, trial.repository, trial.base, {
    run: 'r2', approach: 'a', label: 'a', repeat: 1, patchFile: path.join(trial.top, 'p'), patch: 'p',
  })
}

describe('our refs', () => {
  it('are those of one run when it is removed', async () => {
    const trial = await startTrial('echo 1 > a')
    await trial.collect()
    shell(trial.folder, 'git update-ref refs/kosa8/r10/a/1 HEAD')
    expect(await removeRunRefs(trial.repository, 'r1')).toBe(2)
    expect(shell(trial.folder, 'git for-each-ref --format="%(refname)"')).toBe('refs/heads/main\nrefs/kosa8/r10/a/1\n')
    await expect(stat(path.join(trial.folder, '.git/kosa8'))).rejects.toThrow()
  })

  it('have room for an approach of any name beside the base', async () => {
    const trial = await startTrial('echo 1 > a')
    expect((await trial.collect({ label: 'base' })).ref).toBe('refs/kosa8/r1/base/1')
  })

  it.each(['a b', 'a..b', 'a/b', 'x.lock', '', 'a@{b', 'a:b'])('refuse a label git cannot hold: %j', async (label) => {
    await expect(refName('r1', label, '1')).rejects.toMatchObject({ code: 'USAGE' })
  })
})
