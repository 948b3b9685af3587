/**
 * What counts as a change, whatever git state the approach left behind.
 */
import { readFile, symlink } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { fingerprint, nameStatus, shell, startTrial, treeOfAppliedPatch } from '../helpers/git-fixture.js'

describe('a collected diff', () => {
  it('holds untracked files, empty ones and those in new folders too', async () => {
    const trial = await startTrial('mkdir src; echo 0 > src/total; echo shop > README')
    trial.act('echo 1 > src/total; echo 5 > src/rate; mkdir -p docs/new; echo n > docs/new/note; : > EMPTY')
    const before = trial.act('git status --porcelain; sha256sum .git/index .git/HEAD .git/config')
    const diff = await trial.collect()
    expect(nameStatus(diff)).toEqual(['A EMPTY', 'A docs/new/note', 'A src/rate', 'M src/total'])
    expect(treeOfAppliedPatch(trial)).toBe(diff.tree)
    expect(trial.act('git status --porcelain; sha256sum .git/index .git/HEAD .git/config')).toBe(before)
  })

  it('holds committed, staged and loose work once, with its last content', async () => {
    const trial = await startTrial('for n in a b c d; do echo $n > $n; done')
    trial.act('echo 2 > a; echo 2 > d; git commit -qam part; echo 2 > b; git add b; echo 2 > c; echo 3 > d')
    const diff = await trial.collect()
    expect(nameStatus(diff)).toEqual(['M a', 'M b', 'M c', 'M d'])
    expect(shell(trial.folder, `git show ${diff.ref}:d`)).toBe('3\n')
  })

  it('holds work on another branch or a detached HEAD that is checked out', async () => {
    const trial = await startTrial('echo 1 > a')
    trial.act('git checkout -q -b topic; echo 2 > b; git add b; git commit -qm two; git checkout -q --detach; echo 3 > c; git add c; git commit -qm three')
    expect(nameStatus(await trial.collect())).toEqual(['A b', 'A c'])
  })

  it('says that commits lie on branches that are not checked out', async () => {
    const trial = await startTrial('echo 1 > a')
    trial.act('git checkout -q -b topic; echo 2 > b; git add b; git commit -qm two; git checkout -q main')
    const diff = await trial.collect()
    expect(nameStatus(diff)).toEqual([])
    expect(diff.notes).toEqual(['1 commit on other branches only'])
  })

  it('holds an ignored file that was added on purpose', async () => {
    const trial = await startTrial('echo "*.gen" > .gitignore')
    trial.act('echo 1 > x.gen; echo 2 > y.gen; git add -f x.gen')
    const diff = await trial.collect()
    expect(nameStatus(diff)).toEqual(['A x.gen'])
    expect(diff.omitted.map((entry) => entry.path)).toEqual(['y.gen'])
  })

  it('holds a submodule the approach added as a pointer to its commit, and the removal of one', async () => {
    const trial = await startTrial('git init -q old; git -C old -c user.name=u -c user.email=u@x commit -q --allow-empty -m s; echo a > a')
    shell(trial.top, 'git init -q lib; cd lib; git config user.name u; git config user.email u@x; echo l > l; git add l; git commit -qm lib')
    trial.act('git -c protocol.file.allow=always submodule --quiet add ../lib lib 2>/dev/null; rm -r old')
    const diff = await trial.collect()
    expect(nameStatus(diff)).toEqual(['A .gitmodules', 'A lib', 'D old'])
    expect(diff.changes[1]).toMatchObject({ newMode: '160000', insertions: 1 })
    expect(diff.notes).toContain('files changed inside the submodule lib are not in the diff, only its commit is')
    expect(treeOfAppliedPatch(trial)).toBe(diff.tree)
  })

  it('holds deletions when the whole folder was removed', async () => {
    const trial = await startTrial('mkdir d; echo 1 > d/a; echo 1 > b')
    shell(trial.top, 'rm -rf work')
    expect(nameStatus(await trial.collect())).toEqual(['D b', 'D d/a'])
  })

  it('keeps a file of the base that is tracked although ignored, whatever its size', async () => {
    const trial = await startTrial('echo "*.bin" > .gitignore; head -c 5000 /dev/zero > x.bin; git add -f x.bin')
    trial.act('echo 1 > a')
    expect(await trial.collect({ limits: { fileBytesMax: 1000 } })).toMatchObject({ files: 1, omitted: [] })
  })

  it('sees an edit that keeps size and time of the file within the second it was checked out', async () => {
    const trial = await startTrial('echo aaa > f')
    trial.act('cp -p f ../stamp; echo bbb > f; touch -r ../stamp f')
    expect(nameStatus(await trial.collect())).toEqual(['M f'])
  })

  it('lists deletions and renames', async () => {
    const trial = await startTrial('seq 40 > long; echo x > gone')
    trial.act('git rm -q gone; mkdir lib; git mv long lib/longer')
    const diff = await trial.collect()
    expect(nameStatus(diff)).toEqual(['D gone', 'R long -> lib/longer'])
    expect(treeOfAppliedPatch(trial)).toBe(diff.tree)
  })

  it('lists modes and links with their kind, and does not follow links', async () => {
    const trial = await startTrial('echo r > run; echo d > data; ln -s data link; echo k > keep')
    trial.act('chmod +x run; rm data; ln -s keep data; ln -sfn keep link; ln -s nowhere dangling; echo t > tool; chmod +x tool')
    const diff = await trial.collect()
    expect(diff.changes.map(({ status, path: name, oldMode, newMode }) => [status, name, oldMode, newMode])).toEqual([
      ['A', 'dangling', null, '120000'], ['T', 'data', '100644', '120000'], ['M', 'link', '120000', '120000'],
      ['M', 'run', '100644', '100755'], ['A', 'tool', null, '100755'],
    ])
    expect(treeOfAppliedPatch(trial)).toBe(diff.tree)
  })

  it('gives sizes of binary files, and a patch that carries their bytes', async () => {
    const trial = await startTrial(`printf '\\000\\001gone' > old.bin; printf '\\377\\376h\\000i\\000' > res.rc`)
    trial.act(`rm old.bin; printf '\\377\\376h\\000o\\000' > res.rc; printf '\\000new' > new.bin`)
    const diff = await trial.collect()
    expect(diff.changes).toMatchObject([
      { path: 'new.bin', insertions: null, newBytes: 4 }, { path: 'old.bin', deletions: null, oldBytes: 6 },
      { path: 'res.rc', insertions: null, oldBytes: 6, newBytes: 6 },
    ])
    expect(treeOfAppliedPatch(trial)).toBe(diff.tree)
  })

  it('counts lines that differ by their ending only', async () => {
    const trial = await startTrial(`printf 'a\\r\\nb\\r\\nc\\r\\nd\\r\\n' > win; printf 'a\\r\\nb\\r\\n' > kept; printf 'a\\nb\\n' > unix`)
    trial.act(`printf 'a\\nB\\nc\\nd\\n' > win; printf 'a\\r\\nB\\r\\n' > kept; printf 'a\\r\\nb\\r\\n' > unix`)
    const diff = await trial.collect()
    expect(diff.changes.map(({ path: name, insertions, deletions, endingOnly }) => [name, insertions, deletions, endingOnly]))
      .toEqual([['kept', 1, 1, undefined], ['unix', 2, 2, 2], ['win', 4, 4, 3]])
    expect(treeOfAppliedPatch(trial)).toBe(diff.tree)
  })

  it('says nothing of line endings where contents are too different or too large to compare', async () => {
    const trial = await startTrial('seq 1 5000 | sed "s/$/\\r/" > differs; yes 0123456789 | head -c 3000000 > large; printf "a\\r\\n" > a')
    trial.act('seq 9001 14000 > differs; yes 0123456789 | head -c 3000000 | sed "s/$/\\r/" > large; echo a > a')
    const diff = await trial.collect()
    expect(diff.changes.map(({ path: name, endingOnly }) => [name, endingOnly])).toEqual([['a', 1], ['differs', undefined], ['large', undefined]])
  })

  it('reads bytes although the approach switched conversion on', async () => {
    const trial = await startTrial(`printf 'a\\nb\\n' > f`)
    trial.act(`git config core.autocrlf true; echo '* text eol=crlf' > .gitattributes; rm f; git checkout -q f; printf 'a\\r\\nB\\r\\n' > f`)
    const diff = await trial.collect()
    expect(diff.changes.find((change) => change.path === 'f')).toMatchObject({ insertions: 2, deletions: 2, endingOnly: 1 })
    expect(shell(trial.folder, `git cat-file blob ${diff.ref}:f`)).toBe('a\r\nB\r\n')
  })

  it('reports every odd path exactly, once', async () => {
    const names = ['a b', 'quo"te', 'back\\slash', 'x b/y/in', 'höhe', 'tab\tname', ' lead', 'trail ', '-dash', ':(glob)st*r',
      'dollar$(id)', "it's", 'new\nline', '!bang', '#hash']
    const list = names.map((name) => `'${name.replaceAll("'", `'\\''`)}'`).join(' ')
    const trial = await startTrial(`mkdir -p 'x b/y'; for f in ${list}; do echo 1 > "./$f"; done`)
    trial.act(`for f in ${list}; do echo 2 > "./$f"; done; echo n > 'naïve b'`)
    const diff = await trial.collect()
    expect(diff.changes.map((change) => change.path).sort()).toEqual([...names, 'naïve b'].sort())
    expect(treeOfAppliedPatch(trial)).toBe(diff.tree)
  })

  it('shows bytes of a path that are not UTF-8', async () => {
    const trial = await startTrial('echo 1 > a')
    trial.act(`printf x > "$(printf 'caf\\351-é')"`)
    const diff = await trial.collect()
    expect(diff.changes.map((change) => change.path)).toEqual(['caf\\xe9-é'])
    expect(treeOfAppliedPatch(trial)).toBe(diff.tree)
  })

  it('survives files and folders that change places', async () => {
    const trial = await startTrial('mkdir d e; seq 30 > d/in; seq 50 > e/x; seq 60 > f; echo l > real; ln -s real l')
    trial.act('rm -r d; echo d > d; rm -r e; ln -s real e; mv f g; mkdir f; mv g f/moved; rm l; mkdir l; echo in > l/in')
    const diff = await trial.collect()
    expect(treeOfAppliedPatch(trial)).toBe(diff.tree)
    expect(shell(trial.folder, `git ls-tree -r --name-only ${diff.ref}`).split('\n').filter(Boolean)).toEqual(['d', 'e', 'f/moved', 'l/in', 'real'])
  })

  it('takes nothing in from behind a link that a folder of the base or of the index became', async () => {
    const trial = await startTrial('mkdir d e; echo 1 > d/x; echo 2 > e/x; echo 3 > e/y.gen; echo "*.gen" > .gitignore; git add -f e/y.gen')
    trial.act('mkdir new; echo 4 > new/y.gen; git add -f new/y.gen; rm -r d new; ln -s e d; ln -s e new')
    const diff = await trial.collect()
    expect(nameStatus(diff)).toEqual(['A d', 'D d/x', 'A new'])
    expect(treeOfAppliedPatch(trial)).toBe(diff.tree)
  })

  it('leaves nothing in the repository but objects and one ref, and gives the same commit when asked again', async () => {
    const trial = await startTrial('echo 1 > a')
    const before = fingerprint(trial.folder)
    trial.act('echo 2 > a')
    const first = await trial.collect({ label: 'fast@depth=1,mode=a.b' })
    const second = await trial.collect({ label: 'fast@depth=1,mode=a.b' })
    expect(second.commit).toBe(first.commit)
    expect(first.ref).toBe('refs/kosa8/r1/fast@depth=1,mode=a.b/1')
    expect(shell(trial.folder, `git rev-parse ${first.ref} ${first.ref}^`).trim().split('\n')).toEqual([first.commit, trial.base.commit])
    expect(shell(trial.folder, `git show -s --format='%an <%ae> %s' ${first.ref}`)).toBe('kosa8 <kosa8@localhost> kosa8: fast@depth=1,mode=a.b, repeat 1\n')
    expect(fingerprint(trial.folder)).toBe(before)
    expect(shell(trial.folder, 'git fsck --strict --no-dangling 2>&1; git status --porcelain')).toBe('')
  })

  it('finds a few changes among thousands of files', async () => {
    const trial = await startTrial('for d in $(seq 50); do mkdir $d; for f in $(seq 100); do : > $d/$f; done; done')
    trial.act('echo x > 7/50; rm 8/1; echo n > 9/new')
    expect(nameStatus(await trial.collect())).toEqual(['M 7/50', 'D 8/1', 'A 9/new'])
  })

  it('is an empty patch and a commit with the base tree when nothing changed', async () => {
    const trial = await startTrial('echo 1 > a')
    const diff = await trial.collect()
    expect(diff).toMatchObject({ files: 0, insertions: 0, deletions: 0, tree: trial.base.tree, changes: [], omitted: [], notes: [] })
    expect(await readFile(path.join(trial.top, 'result.patch'), 'utf8')).toBe('')
  })

  it('finds the disk full where its patch has no room, and does not blame the approach', async () => {
    const trial = await startTrial('echo 1 > a')
    trial.act('echo 2 > a')
    await symlink('/dev/full', path.join(trial.top, 'result.patch'))
    await expect(trial.collect()).rejects.toMatchObject({ code: 'ENOSPC' })
  })

  it('leaves out what is too large, and says so', async () => {
    const trial = await startTrial('echo 1 > a; head -c 3000 /dev/zero > grows')
    trial.act('head -c 9000 /dev/zero > big; head -c 4000 /dev/zero > one; head -c 3900 /dev/zero > two; head -c 9000 /dev/zero > grows; echo 2 > a')
    const diff = await trial.collect({ limits: { fileBytesMax: 8000, totalBytesMax: 5000 } })
    expect(nameStatus(diff)).toEqual(['M a', 'A two'])
    expect(diff.omitted).toEqual([
      { path: 'big', bytes: 9000, reason: 'larger than 8000 bytes' },
      { path: 'grows', bytes: 9000, reason: 'larger than 8000 bytes' },
      { path: 'one', bytes: 4000, reason: 'changes larger than 5000 bytes in all' },
    ])
  })

  it('leaves out the folder with the most new files when there are too many', async () => {
    const trial = await startTrial('echo 1 > a')
    trial.act('mkdir -p deps/x src; for i in $(seq 30); do echo $i > deps/x/$i; done; echo s > src/s')
    const diff = await trial.collect({ limits: { entriesMax: 10 } })
    expect(nameStatus(diff)).toEqual(['A src/s'])
    expect(diff.omitted).toEqual([{ path: 'deps/', bytes: 81, reason: '30 new files, too many to collect' }])
  })
})
