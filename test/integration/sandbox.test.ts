/**
 * A live sandbox that is forked while it works, and everything a user can get wrong around it.
 */
import { open, readdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { RunId } from '../../src/model/ids.js'
import { runDocumentSchema, type RunDocument } from '../../src/model/run.js'
import { runProgram } from '../../src/util/spawn.js'
import { ADDER_FILES, FIX } from '../helpers/adder.js'
import { shell } from '../helpers/git-fixture.js'
import { Kosa8, type Running } from '../helpers/kosa8.js'

/** Counts on disk and in memory for as long as the machine is the one it was started on. */
const COUNTER = `i=0; h=source; while [ "$h" = source ]; do i=$((i+1)); echo $i > /root/count; echo $i > /dev/shm/count
read h < /proc/sys/kernel/hostname; echo tick; sleep 0.1; done; echo stopped`
/** Tells what a clone finds: the counters, its name, its clock, its randomness, its network, its size. */
const LOOK = `echo "now $(date +%s%N)"; echo "count $(cat /root/count) $(cat /dev/shm/count)"
echo "name $(cat /proc/sys/kernel/hostname)"; echo "id $(cat /etc/machine-id) $KOSA8_CLONE_ID"
echo "random $(od -An -N16 -tx1 /dev/urandom | tr -d ' ')"; echo "net $(ls /sys/class/net | tr '\\n' ' ')"
echo "mem $(sed -n 's/^MemTotal: *//p' /proc/meminfo) $(nproc)"\n`

let kosa8: Kosa8
let repository: string
let counting: Running
let ofTheSandbox: Record<string, string[]>

beforeAll(async () => {
  kosa8 = await Kosa8.open()
  repository = await kosa8.makeRepository('adder', ADDER_FILES, { fix: FIX, look: LOOK })
  await kosa8.ask(['create', 'source', '--repo', repository, '--mem', '320M', '--cpus', '2'])
  await kosa8.ask(['checkpoint', 'source', '--label', 'Before'])
  ofTheSandbox = await kosa8.listLeftovers()
}, 300_000)

afterAll(() => kosa8.close())

describe('a fork of a live sandbox', () => {
  let document: RunDocument
  /** What each clone said, by the first word of the line. */
  let said: Record<string, string>[]
  let clockErrorsMs: number[]

  beforeAll(async () => {
    counting = kosa8.start(['exec', 'source', '--', 'sh', '-c', COUNTER])
    await new Promise((resolve) => counting.process.stdout!.once('data', resolve))
    const { run, fork } = await kosa8.startFork(['source', '--approaches', 'look', '--repeats', '3', '--test', 'sh test/run.sh'])
    const { status, stdout, stderr } = await fork.ended
    expect(status, stderr).toBe(0)
    document = runDocumentSchema.parse(JSON.parse(stdout))
    said = [{}, {}, {}]
    clockErrorsMs = []
    for (const event of await kosa8.runs.readEvents(run)) {
      if (event.type !== 'trial-output' || event.label !== 'look') continue
      for (const [, word, rest] of event.text.matchAll(/^(\w+) (.*)$/gm)) {
        said[event.repeat - 1]![word!] = rest!
        if (word === 'now') clockErrorsMs.push(Math.abs(Date.parse(event.at) - Number(rest) / 1e6))
      }
    }
  }, 300_000)

  it('leaves the source running, and reports how long it stood still (invariant 4)', async () => {
    expect(document.checkpoint?.pauseMs).toBeGreaterThan(0)
    const countNow = (): Promise<string> => kosa8.ask(['exec', 'source', '--', 'cat', '/root/count'])
    const before = Number(await countNow())
    await new Promise((resolve) => counting.process.stdout!.once('data', resolve))
    expect(Number(await countNow())).toBeGreaterThan(before)
    expect(counting.process.exitCode).toBeNull()
  })

  it('starts every clone from one instant of disk and memory (invariant 3)', () => {
    const counts = said.map(({ count }) => count)
    expect(new Set(counts).size).toBe(1)
    const [onDisk, inMemory] = counts[0]!.split(' ')
    expect(onDisk).toBe(inMemory)
  })

  it('gives each clone a name, a machine id and randomness of its own, and the time of day (invariant 2)', () => {
    for (const word of ['name', 'id', 'random']) expect(new Set(said.map((one) => one[word])).size, word).toBe(3)
    expect(said[0]!['random']).toMatch(/^[0-9a-f]{32}$/)
    // The guest's line reaches the host late on a busy machine; a clock that was not set would be far off.
    expect(Math.max(...clockErrorsMs)).toBeLessThan(10_000)
  })

  it('gives each clone the size of its parent and no network card (invariant 8)', async () => {
    const [mem] = (await kosa8.ask(['exec', 'source', '--', 'sed', '-n', 's/^MemTotal: *//p', '/proc/meminfo'])).trim().split('\n')
    for (const one of said) expect(one).toMatchObject({ net: 'lo ', mem: `${mem} 2` })
  })

  it('removes the checkpoint it took and nothing else', async () => {
    const left = await kosa8.leftoversOnceTidy(document.id as RunId)
    expect({ ...left, layers: [] }).toEqual({ ...ofTheSandbox, layers: [] })
    expect(JSON.parse(await kosa8.ask(['checkpoint', 'ls', 'source', '--json']))).toHaveLength(1)
  })

  it('can be taken of an earlier checkpoint, by its label, again and again', async () => {
    for (let time = 0; time < 2; time += 1) {
      const result = runDocumentSchema.parse(JSON.parse(await kosa8.ask(['fork', 'source', '--from', 'before', '--approaches', 'fix', '--json'])))
      expect(result).toMatchObject({ winner: 'fix', checkpoint: { pauseMs: null } })
    }
  })
})

describe('wrong use ends with one clear line and status 2, and starts nothing:', () => {
  async function expectRefused(args: string[], message: RegExp, cwd = repository): Promise<void> {
    const before = await readdir(kosa8.paths.runs)
    const { status, stdout, stderr } = await kosa8.type(args, { cwd })
    expect(stderr.trimEnd().split('\n')[0]).toMatch(message)
    expect(stderr.trimEnd().split('\n').length).toBeLessThanOrEqual(2)
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' })
    expect(await readdir(kosa8.paths.runs)).toEqual(before)
  }

  it('an unknown approach, whose message lists those there are', () => expectRefused(['fork', '--approaches', 'fix,nope'], /nope/))
  it('no approach at all', () => expectRefused(['fork', '--approaches', ''], /approach/))
  it('the same approach twice', () => expectRefused(['fork', '--approaches', 'fix,fix'], /fix.*twice|twice.*fix/))
  it('a checkpoint that does not exist', () => expectRefused(['fork', 'source', '--from', 'never', '--approaches', 'fix'], /no checkpoint "never"/))

  it('a broken kosa8.yaml, whose message names the place', async () => {
    const broken = await kosa8.makeRepository('broken', { 'kosa8.yaml': 'imag: base\n' }, { fix: FIX })
    await expectRefused(['fork', '--approaches', 'fix'], /imag.*image|imag/, broken)
  })

  it('a folder that is no repository', () => expectRefused(['fork', '--approaches', 'fix'], /git repository|not a repository/, '/'))

  it('a repository without a commit', async () => {
    const empty = path.join(kosa8.folder, 'empty')
    shell(kosa8.folder, 'git init -q empty; mkdir -p empty/.kosa8/approaches; echo true > empty/.kosa8/approaches/fix.sh')
    const { status, stderr } = await kosa8.type(['fork', '--approaches', 'fix'], { cwd: empty })
    expect(status).toBe(2)
    expect(stderr).toMatch(/commit/)
  })
})

describe('a fork whose tests write no report', () => {
  it('completes, calls nobody better and says why', async () => {
    const document = runDocumentSchema.parse(JSON.parse(await kosa8.ask(
      ['fork', 'source', '--from', 'Before', '--approaches', 'fix', '--test', 'true', '--results', 'out/*.xml', '--json'])))
    expect(document).toMatchObject({ state: 'completed', winner: null, trials: [{ verdict: 'same', diff: { files: 1 } }] })
    expect(document.trials[0]!.tests).not.toMatchObject({ state: 'parsed' })
    expect(document.baseline!.tests.reason).toMatch(/report/)
    expect(document.trials[0]!.reasons.join()).toMatch(/results could not be read/)
  })
})

describe('a fork whose guests cannot be given an identity', () => {
  it('hands none of them to a strategy, destroys them and says so (invariant 2)', async () => {
    // A folder where the file with the machine's id belongs: the real agent cannot replace it.
    const spoil = 'rm -f /run/kosa8/machine-id && mkdir /run/kosa8/machine-id'
    await kosa8.ask(['exec', 'source', '--', 'sh', '-c', spoil])
    try {
      const { run, fork } = await kosa8.startFork(['source', '--approaches', 'fix'])
      const { status, stdout } = await fork.ended
      expect(status).toBe(3)
      expect(JSON.parse(stdout)).toMatchObject({
        state: 'failed', trials: [], error: { code: 'IDENTITY_NOT_REPAIRED', message: expect.stringContaining('machineIdSet') as string },
      })
      expect((await kosa8.runs.readEvents(run)).some((event) => event.type === 'trial-output')).toBe(false)
      expect({ ...await kosa8.leftoversOnceTidy(run), layers: [] }).toEqual({ ...ofTheSandbox, layers: [] })
    } finally {
      await kosa8.ask(['exec', 'source', '--', 'rmdir', '/run/kosa8/machine-id'])
    }
  })
})

describe('a checkpoint', () => {
  it('for which the disk has no room fails in one line, and the sandbox goes on', async ({ skip }) => {
    const place = path.join(kosa8.paths.checkpoints, 'crowded')
    await kosa8.ask(['create', 'crowded', '--mem', '192M'])
    shell('/', `mkdir -p ${place}`)
    const mounted = await runProgram('mount', ['-t', 'tmpfs', '-o', 'size=4m', 'tmpfs', place]).catch(() => ({ code: null }))
    if (mounted.code !== 0) {
      await kosa8.ask(['rm', 'crowded'])
      skip('a small file system can only be mounted by root, with the program mount')
    }
    try {
      const { status, stderr } = await kosa8.type(['checkpoint', 'crowded'])
      expect(status).toBe(3)
      expect(stderr).toMatch(/^kosa8: checkpoint crowded-ckpt-1 needs \d+ MiB on the disk of \S+\/crowded\S*, where [0-4] MiB are free; nothing was lost: /)
      expect(await kosa8.ask(['exec', 'crowded', '--', 'echo', 'here'])).toBe('here\n')
      expect(JSON.parse(await kosa8.ask(['checkpoint', 'ls', 'crowded', '--json']))).toEqual([])
    } finally {
      await runProgram('umount', [place])
      await kosa8.ask(['rm', 'crowded'])
    }
  })

  it('in which one byte has changed is refused by name, and the sandbox goes on', async () => {
    const directory = kosa8.paths.checkpointDirectory('source' as never, 'source-ckpt-1' as never)
    const handle = await open(path.join(directory, 'device'), 'r+').catch(() => open(path.join(directory, 'memory'), 'r+'))
    const { buffer } = await handle.read(Buffer.alloc(1), 0, 1, 100)
    await handle.write(Buffer.from([buffer[0]! ^ 0xff]), 0, 1, 100)
    await handle.close()
    const { status, stderr } = await kosa8.type(['fork', 'source', '--from', 'Before', '--approaches', 'fix'])
    expect(status).toBe(3)
    expect(stderr).toMatch(/its content is not what was saved/)
    expect(await kosa8.ask(['exec', 'source', '--', 'echo', 'here'])).toBe('here\n')
  })

  it('that was cut short is refused by name', async () => {
    const directory = kosa8.paths.checkpointDirectory('source' as never, 'source-ckpt-1' as never)
    await writeFile(path.join(directory, 'memory'), 'short')
    const { status, stderr } = await kosa8.type(['fork', 'source', '--from', 'Before', '--approaches', 'fix'])
    expect(status).toBe(3)
    expect(stderr).toMatch(/has 5 bytes instead of/)
  })
})
