/**
 * Guests that do not play fair: settings that are commands, destroyed records, objects that lie.
 */
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { collectDiff } from '../../src/git/collect.js'
import type { StageLimits } from '../../src/git/stage.js'
import type { Workspace } from '../../src/git/workspace.js'
import { fingerprint, nameStatus, shell, startTrial, treeOfAppliedPatch, type Trial } from '../helpers/git-fixture.js'

const PLANT = (config: string): string => `
for h in pre-commit post-index-change post-checkout reference-transaction; do
  mkdir -p .git/evil; printf '#!/bin/sh\\ntouch "%s/../canary-hook"\\n' "$PWD" > .git/evil/$h; chmod +x .git/evil/$h
done
cat >> ${config} <<CFG
[core]
	fsmonitor = "touch '$PWD/../canary-fsmonitor'; false"
	hooksPath = $PWD/.git/evil
	pager = "touch '$PWD/../canary-pager'; cat"
	sshCommand = "touch '$PWD/../canary-ssh'"
	alternateRefsCommand = "touch '$PWD/../canary-refs'"
[diff]
	external = "touch '$PWD/../canary-external'"
[diff "conv"]
	textconv = "touch '$PWD/../canary-textconv'; cat"
	command = "touch '$PWD/../canary-command'"
[filter "evil"]
	clean = "touch '$PWD/../canary-clean'; cat"
	smudge = "touch '$PWD/../canary-smudge'; cat"
	process = "touch '$PWD/../canary-process'"
	required = true
[merge "evil"]
	driver = "touch '$PWD/../canary-merge'"
CFG
`

async function canaries(trial: Trial): Promise<string[]> {
  return (await readdir(trial.top)).filter((name) => name.startsWith('canary'))
}

function collectFrom(trial: Trial, workspace: Workspace, limits: Partial<StageLimits> = {}): ReturnType<typeof collectDiff> {
  return collectDiff(workspace, trial.repository, trial.base, {
    run: 'r1', approach: 'evil', label: 'evil', repeat: 1, patchFile: path.join(trial.top, 'result.patch'), patch: 'p', limits,
  })
}

/** A guest whose `git write-tree` names another tree, made by `script` in our evidence folder. */
function lyingAboutTree(trial: Trial, script: string): Workspace {
  const tree = shell(trial.workspace.path, script, { GIT_DIR: `${trial.workspace.stateDirectory}/evidence` }).trim()
  return {
    ...trial.workspace,
    run: async (argv, options) => argv.includes('write-tree')
      ? { exitCode: 0, stdout: Buffer.from(`${tree}\n`), stderr: Buffer.alloc(0) }
      : trial.workspace.run(argv, options),
  }
}

describe('collecting from a hostile guest', () => {
  it('runs none of the commands planted in settings, attributes and hooks, in the guest or on the host', async () => {
    const trial = await startTrial('echo 1 > a.txt; echo 1 > b.dat')
    trial.act(`echo 2 > a.txt; echo 2 > b.dat
printf '*.txt diff=conv merge=evil\\n*.dat filter=evil\\n* ident\\n' > .gitattributes
cp .gitattributes .git/info/attributes; cp .gitattributes ${trial.workspace.stateDirectory}/evidence/info/attributes
${PLANT('.git/config')}${PLANT(`${trial.workspace.stateDirectory}/evidence/config`)}
mkdir -p ${trial.workspace.stateDirectory}/evidence/hooks; cp .git/evil/* ${trial.workspace.stateDirectory}/evidence/hooks/; rm -f ../canary-*`)
    const diff = await trial.collect()
    expect(nameStatus(diff)).toEqual(['A .gitattributes', 'M a.txt', 'M b.dat'])
    expect(await canaries(trial)).toEqual([])
    // The canaries do sing when git is asked the ordinary way.
    trial.act('git -c core.pager=cat status >/dev/null 2>&1 || true')
    expect(await canaries(trial)).not.toEqual([])
  })

  it('runs none of the commands planted in a submodule or a nested repository', async () => {
    const trial = await startTrial('git init -q sub; git -C sub -c user.name=u -c user.email=u@x commit -q --allow-empty -m s; echo a > a')
    expect(shell(trial.folder, `git ls-tree ${trial.base.tree} sub`)).toMatch(/^160000/)
    trial.act(`for d in sub new; do mkdir -p $d; cd $d; git init -q; git -c user.name=u -c user.email=u@x commit -q --allow-empty -m n; echo f > f; ${PLANT('.git/config')} cd ..; done; rm -f canary-*`)
    const diff = await trial.collect()
    expect(nameStatus(diff)).toEqual(['A new/f', 'M sub'])
    expect(diff.notes).toContain('files changed inside the submodule sub are not in the diff, only its commit is')
    expect((await readdir(trial.workspace.path)).filter((name) => name.startsWith('canary'))).toEqual([])
  })

  it('reads no byte behind a link, and does not wait for a FIFO', async () => {
    const trial = await startTrial('echo 1 > a; echo t > tracked')
    shell(trial.top, 'echo canary-outside > outside')
    trial.act('echo 2 > a; ln -s ../outside junit.xml; ln -s .. reports; ln -s /proc/self/environ env; mkfifo out.xml; rm tracked; mkfifo tracked')
    const diff = await trial.collect()
    expect(nameStatus(diff)).toEqual(['M a', 'A env', 'A junit.xml', 'A reports', 'D tracked'])
    expect(diff.omitted).toEqual([
      { path: 'out.xml', bytes: 0, reason: 'not a regular file (FIFO)' }, { path: 'tracked', bytes: 0, reason: 'not a regular file (FIFO)' },
    ])
    expect(await readFile(path.join(trial.top, 'result.patch'), 'utf8')).not.toContain('canary-outside')
  })

  it.each([
    ['removed', 'rm -rf .git', 'the .git folder was removed'],
    ['a file', 'rm -rf .git; echo gitdir: /nowhere > .git', 'the .git folder was replaced'],
    ['a link', 'rm -rf .git; ln -s /proc .git', 'the .git folder was replaced'],
  ])('does not need the repository\'s own .git, when that is %s', async (_, script, note) => {
    const trial = await startTrial('echo 1 > a')
    trial.act(`echo 2 > a; echo n > n; ${script}`)
    const diff = await trial.collect()
    expect(nameStatus(diff)).toEqual(['M a', 'A n'])
    expect(diff.notes).toEqual([note])
  })

  it('does not need a readable .git: damaged index, settings and HEAD cost remarks only', async () => {
    const trial = await startTrial('echo 1 > a')
    trial.act('echo 2 > a; echo garbage > .git/index; echo "[broken" > .git/config; rm .git/HEAD; mkfifo .git/MERGE_HEAD; rm -rf .git/objects')
    const diff = await trial.collect()
    expect(nameStatus(diff)).toEqual(['M a'])
    expect(treeOfAppliedPatch(trial)).toBe(diff.tree)
  })

  it('refuses evidence when our record of the base was destroyed', async () => {
    const trial = await startTrial('echo 1 > a')
    trial.act(`rm -rf ${trial.workspace.stateDirectory}`)
    await expect(trial.collect()).rejects.toMatchObject({ code: 'EVIDENCE_REFUSED', message: expect.stringContaining('was destroyed') as string })
  })

  it('refuses evidence when the workspace was replaced by a link', async () => {
    const trial = await startTrial('echo 1 > a')
    shell(trial.top, 'mv work elsewhere; ln -s / work')
    await expect(trial.collect()).rejects.toMatchObject({ code: 'EVIDENCE_REFUSED', message: expect.stringContaining('replaced by a link') as string })
  })

  it.each([
    ['a path into .git', 'hasDotgit', `printf '100644 blob %s\\tconfig\\n' "$(echo x | git hash-object -w --stdin)" | git mktree | xargs -I T printf '040000 tree T\\t.git\\n' | git mktree`],
    ['a path upwards', 'hasDotdot', `printf '100644 blob %s\\tx\\n' "$(echo x | git hash-object -w --stdin)" | git mktree | xargs -I T printf '040000 tree T\\t..\\n' | git mktree`],
    ['a .git in other letters', 'hasDotgit', `printf '100644 blob %s\\t.GiT\\n' "$(echo x | git hash-object -w --stdin)" | git mktree`],
    ['a submodule name that leaves its folder', 'gitmodulesName', `printf '100644 blob %s\\t.gitmodules\\n' "$(printf '[submodule "../../x"]\\n\\tpath = x\\n\\turl = y\\n' | git hash-object -w --stdin)" | git mktree`],
    ['a submodule address that is an option', 'gitmodulesUrl', `printf '100644 blob %s\\t.gitmodules\\n' "$(printf '[submodule "x"]\\n\\tpath = x\\n\\turl = --upload-pack=evil\\n' | git hash-object -w --stdin)" | git mktree`],
    ['a .gitmodules that is a link', 'gitmodulesSymlink', `printf '120000 blob %s\\t.gitmodules\\n' "$(printf /etc/passwd | git hash-object -w --stdin)" | git mktree`],
    ['an object that is not there', 'refuses the objects', `printf '100644 blob 1234567890123456789012345678901234567890\\tx\\n' | git mktree --missing`],
    ['a blob in the place of a tree', 'did not send the tree', `echo x | git hash-object -w --stdin`],
    ['text that is no object', 'cannot be one', `echo '--output=/tmp/x'`],
    ['a mode git does not know', 'another tree came out', `printf '140000 x\\0aaaaaaaaaaaaaaaaaaaa' | git hash-object -t tree -w --stdin --literally`],
  ])('refuses a tree with %s, and keeps it out of the user\'s repository', async (_, words, script) => {
    const trial = await startTrial('echo 1 > a')
    const before = fingerprint(trial.folder)
    const objects = shell(trial.folder, 'git count-objects -v; git for-each-ref')
    const thrown = await collectFrom(trial, lyingAboutTree(trial, script)).catch((error: unknown) => error)
    expect(thrown).toMatchObject({ message: expect.stringContaining(words) as string })
    expect(shell(trial.folder, 'git count-objects -v; git for-each-ref')).toBe(objects)
    expect(fingerprint(trial.folder)).toBe(before)
  })

  it('stops a guest that sends more than was agreed', async () => {
    const trial = await startTrial('echo 1 > a')
    const script = `printf '100644 blob %s\\tx\\n' "$(head -c 12000000 /dev/urandom | git hash-object -w --stdin)" | git mktree`
    const collecting = collectFrom(trial, lyingAboutTree(trial, script), { totalBytesMax: 1000 })
    await expect(collecting).rejects.toMatchObject({ code: 'EVIDENCE_REFUSED', message: expect.stringContaining('maximum allowed size') as string })
  })

  it('refuses a pack that was cut short', async () => {
    const trial = await startTrial('echo 1 > a')
    trial.act('seq 10000 > a')
    const cutting: Workspace = {
      ...trial.workspace,
      stream: (argv, options) => trial.workspace.stream(['sh', '-c', '"$@" | head -c 300', 'sh', ...argv], options ?? {}),
    }
    await expect(collectFrom(trial, cutting)).rejects.toMatchObject({ code: 'EVIDENCE_REFUSED' })
  })

  it('stops when the trial is cancelled', async () => {
    const trial = await startTrial('echo 1 > a')
    const controller = new AbortController()
    controller.abort()
    await expect(collectDiff(trial.workspace, trial.repository, trial.base, {
      run: 'r1', approach: 'a', label: 'a', repeat: 1, patchFile: path.join(trial.top, 'p'), patch: 'p', signal: controller.signal,
    })).rejects.toThrow()
  })
})
