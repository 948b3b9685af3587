/**
 * The main job from end to end: one repository, three approaches, a comparison; then everything a user does with it.
 */
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { RunId } from '../../src/model/ids.js'
import { runDocumentSchema, type RunDocument, type TrialResult } from '../../src/model/run.js'
import { ADDER_FILES, CHEAT, FIX, HASTY } from '../helpers/adder.js'
import { fingerprint, shell } from '../helpers/git-fixture.js'
import { Kosa8, NOTHING_LEFT, waitUntilGone } from '../helpers/kosa8.js'

let kosa8: Kosa8
let repository: string
let before: string
let document: RunDocument

const trial = (label: string): TrialResult => document.trials.find((one) => one.label === label)!
const patchOf = (label: string): Promise<string> => readFile(path.join(document.dir, trial(label).diff!.patch), 'utf8')

beforeAll(async () => {
  // Room for two trials, by what is predicted for machines of this size.
  kosa8 = await Kosa8.open({ KOSA8_MEMORY_BUDGET: '260M' })
  repository = await kosa8.makeRepository('adder', ADDER_FILES, { fix: FIX, hasty: HASTY, cheat: CHEAT })
  await writeFile(path.join(repository, 'notes.txt'), 'not committed\n')
  await writeFile(path.join(repository, 'README'), 'staged\n')
  shell(repository, 'git add README; echo changed >> kosa8.yaml; sed -i s/changed/repeats:\\ 1/ kosa8.yaml')
  shell(repository, 'printf "#!/bin/sh\\nexit 1\\n" > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit')
  before = fingerprint(repository)
  const { status, stdout, stderr } = await kosa8.type(['fork', '--approaches', 'fix,hasty,cheat', '--json'], { cwd: repository })
  expect(status, stderr).toBe(0)
  document = runDocumentSchema.parse(JSON.parse(stdout))
})

afterAll(() => kosa8.close())

describe('a fork of three approaches', () => {
  it('tells the fix, the fix that breaks something and the edited test apart', () => {
    expect(document).toMatchObject({ state: 'completed', ranking: ['fix', 'cheat', 'hasty'], winner: 'fix', error: null })
    expect(document.baseline?.tests).toMatchObject({ total: 2, passed: 1, failed: 1, failing: ['adds'] })
    expect(trial('fix')).toMatchObject({ state: 'completed', verdict: 'better', tests: { fixed: ['adds'], regressed: [], tampered: [] } })
    expect(trial('hasty')).toMatchObject({ state: 'completed', verdict: 'worse', tests: { fixed: ['adds'], regressed: ['doubles'] } })
    expect(trial('cheat')).toMatchObject({
      verdict: 'same', tests: { fixed: [], stillFailing: ['adds'], tampered: ['test/run.sh'] },
    })
  })

  it('measures memory and every phase of each trial', () => {
    for (const { timingsMs, memory } of document.trials) {
      expect(Object.keys(timingsMs)).toEqual(expect.arrayContaining(['wait', 'clone', 'identity', 'strategy', 'diff', 'tests']))
      expect(memory.reservedBytes).toBeGreaterThan(0)
      expect(memory.peakPrivateBytes).toBeGreaterThan(0)
    }
  })

  it('starts no trial without memory for it: the others wait and say what for (invariant 7)', async () => {
    const events = await kosa8.runs.readEvents(document.id as RunId)
    const waits = events.flatMap((event) => (event.type === 'trial-phase' && event.phase === 'waiting' ? [event.message] : []))
    expect(waits.length).toBeGreaterThan(0)
    for (const message of waits) expect(message).toMatch(/needs \d+ MiB, \d+ MiB free/)
    let [running, most] = [0, 0]
    for (const event of events) {
      if (event.type === 'trial-phase' && event.phase === 'cloning') most = Math.max(most, running += 1)
      if (event.type === 'trial-end') running -= 1
    }
    expect(most).toBe(2)
  })

  it('touches nothing of the repository but refs/kosa8', () => {
    expect(fingerprint(repository)).toBe(before)
    const refs = shell(repository, `git for-each-ref --format='%(refname)' refs/kosa8`).trim().split('\n')
    for (const label of ['fix', 'hasty', 'cheat']) expect(refs).toContain(`refs/kosa8/${document.id}/${label}/1`)
  })

  it('keeps each result as one commit on top of the base, whose diff is the patch', async () => {
    for (const label of ['fix', 'hasty', 'cheat']) {
      const { ref, commit } = trial(label).diff!
      expect(shell(repository, `git rev-parse ${ref} ${ref}^`).trim().split('\n')).toEqual([commit, document.base!.commit])
      expect(await patchOf(label)).toBe(shell(repository, `git diff --binary --full-index ${document.base!.commit} ${ref}`))
    }
  })

  it('takes uncommitted and untracked changes into the base', () => {
    expect(shell(repository, `git show ${document.base!.commit}:notes.txt ${document.base!.commit}:README`)).toBe('not committed\nstaged\n')
  })

  it('leaves no machine, socket, overlay, record, reservation or job behind (invariant 6)', async () => {
    expect(await kosa8.leftoversOnceTidy(document.id as RunId)).toEqual(NOTHING_LEFT)
  })
})

describe('a run that has ended', () => {
  it('is listed and shown with its winner', async () => {
    const [summary] = JSON.parse(await kosa8.ask(['runs', '--json'])) as { id: string; winner: string; phase: string }[]
    expect(summary).toMatchObject({ id: document.id, winner: 'fix', phase: 'completed' })
    expect(await kosa8.ask(['runs', 'show', document.id])).toContain('winner: fix')
  })

  it('shows one patch, and the difference of two approaches', async () => {
    expect(await kosa8.ask(['diff', document.id, 'fix'])).toBe(await patchOf('fix'))
    const between = await kosa8.ask(['diff', document.id, 'fix', 'hasty'])
    expect(between.split('\n').filter((line) => /^[-+][^-+]/.test(line))).toEqual([
      '-twice() { echo $(($1 + $1)); }', '+twice() { echo $(($1)); }',
    ])
  })

  it('is reported in every format', async () => {
    const signs = {
      text: 'winner: fix', md: '| fix', html: '<!doctype html>', json: '"kosa8.run/1"', junit: '<testsuites', ctrf: '"results"',
    }
    for (const [format, sign] of Object.entries(signs)) {
      expect((await kosa8.ask(['report', document.id, '--format', format])).toLowerCase(), format).toContain(sign.toLowerCase())
    }
  })

  it('applies an approach to a branch and leaves the working tree alone', async () => {
    await kosa8.ask(['apply', document.id, 'fix', '--branch', 'mended'])
    expect(shell(repository, 'git show mended:add.sh')).toContain('$1 + $2')
    expect(shell(repository, 'git diff --stat HEAD -- add.sh; git symbolic-ref HEAD')).toBe('refs/heads/main\n')
  })

  it('is removed with its folder and its refs', async () => {
    await kosa8.ask(['runs', 'rm', document.id])
    expect(JSON.parse(await kosa8.ask(['runs', 'ls', '--json']))).toEqual([])
    expect(shell(repository, 'git for-each-ref refs/kosa8')).toBe('')
  })
})

it('ends the daemon, the worker and redis-server once nobody needs them', async () => {
  const ours = [await kosa8.daemon(), await kosa8.worker(), await kosa8.redis()]
  for (const identity of ours) await waitUntilGone(identity)
  expect(kosa8.processes()).toEqual([])
})
