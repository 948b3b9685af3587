/**
 * The two programs of the guide to checkpoints, with a real machine: the container's lines are commands of the sandbox.
 */
import { mkdir, readdir, writeFile } from 'node:fs/promises'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { Kosa8Client, MemoryCheckpointStore, type FileCheckpointStore, type SandboxHandle } from '../../src/sdk/index.js'
import { findPackageRoot } from '../../src/util/package-root.js'
import { runProgram } from '../../src/util/spawn.js'
import { Kosa8 } from '../helpers/kosa8.js'

/** A counter that lives in a shell's variable alone. */
const COUNTER = 'echo $$ > /tmp/pid; echo v1 > /schema; i=0; while :; do i=$((i+1)); echo $i > /tmp/tick; sleep 0.2; done'

/** Long enough for a machine that does much else; a wait that takes longer has failed. */
const PATIENCE_MS = 60_000

let kosa8: Kosa8
let client: Kosa8Client
let db: SandboxHandle

const sh = async (script: string): Promise<string> => (await db.exec(['sh', '-c', script])).stdout.trim()
const tick = async (): Promise<number> => Number(await sh('cat /tmp/tick'))
/** Number and start time of the counter's process; fails when there is none. */
const startOfCounter = async (): Promise<string> => sh('set -e; cut -d" " -f1,22 /proc/$(cat /tmp/pid)/stat')
const ticksAfter = async (before: number): Promise<void> =>
  vi.waitFor(async () => expect(await tick()).toBeGreaterThan(before), { timeout: PATIENCE_MS })

beforeAll(async () => {
  kosa8 = await Kosa8.open()
  client = new Kosa8Client({ home: kosa8.paths.home })
  await client.createSandbox({ name: 'db', egress: 'deny', memMb: 256 })
  db = client.sandbox('db')
  await db.start(['sh', '-c', COUNTER])
  await ticksAfter(0)
})

afterAll(() => kosa8.close())

describe('a program of the guide', () => {
  it('gets files and processes back, still running, and loses the later checkpoints', async () => {
    const started = await startOfCounter()
    const a = await db.checkpoint({ label: 'before migration' })
    expect(a).toMatchObject({ checkpoint: { id: 'db-ckpt-1', label: 'before migration' }, evicted: [] })
    const saved = await tick()
    await sh('echo v2 > /schema')
    const b = await db.checkpoint({ label: 'after the schema change' })
    expect(b.checkpoint.id).toBe('db-ckpt-2')
    await sh('rm /schema')
    await ticksAfter(saved + 10)
    const reached = await tick()
    expect((await db.checkpoints()).map((c) => `${c.id} (${c.label})`)).toEqual(['db-ckpt-1 (before migration)', 'db-ckpt-2 (after the schema change)'])

    const rewound = await db.rewind({ to: 'Before Migration' })
    expect(rewound).toMatchObject({ checkpoint: { id: 'db-ckpt-1' }, dropped: ['db-ckpt-2'] })
    expect(rewound.restore_ms).toBeGreaterThan(0)
    expect(await sh('cat /schema')).toBe('v1')
    const back = await tick()
    expect(back).toBeLessThan(reached)
    await ticksAfter(back)
    expect(await startOfCounter()).toBe(started)
    expect((await db.checkpoints()).map((c) => c.id)).toEqual(['db-ckpt-1'])
    expect(await readdir(`${kosa8.paths.checkpoints}/db`)).toEqual(['db-ckpt-1'])
  })

  it('shares its list with the command line, both ways', async () => {
    expect(await kosa8.ask(['checkpoint', 'ls', 'db'])).toMatch(/^\*db-ckpt-1 {3}just now {3}you {5}before migration$/m)
    await sh('echo from the program > /note')
    await kosa8.ask(['checkpoint', 'db', '--label', 'by hand'])
    await sh('rm /note')
    expect((await db.rewind()).checkpoint.label).toBe('by hand')
    expect(await sh('cat /note')).toBe('from the program')
    expect(await kosa8.ask(['rewind', 'db', '--to', 'before migration', '-y']))
      .toMatch(/^db is back at db-ckpt-1 \(\d+ms\)\n {2}dropped 1 later checkpoint\(s\)\n$/)
    expect(await sh('cat /schema; ls /note 2>&1 | grep -c "No such"')).toBe('v1\n1')
  })

  it('keeps its list where it wants, and deletes a sandbox with its checkpoints', async () => {
    expect((client.checkpoints.store as FileCheckpointStore).path).toBe(`${kosa8.paths.home}/checkpoints.json`)
    const isolated = new Kosa8Client({ home: kosa8.paths.home, checkpointStore: new MemoryCheckpointStore() })
    await isolated.createSandbox({ name: 'scratch', egress: 'deny', memMb: 256 })
    await isolated.checkpoint('scratch', { label: 'private' })
    expect((await isolated.listCheckpoints('scratch')).map((x) => x.id)).toEqual(['scratch-ckpt-1'])
    expect(await client.listCheckpoints('scratch')).toEqual([])
    expect(await isolated.deleteSandbox('scratch')).toEqual({ ok: true, checkpoints_dropped: 1 })
    expect(await readdir(kosa8.paths.checkpoints)).toEqual(['db'])
  })
})

describe('a sandbox', () => {
  it('goes back to its checkpoint after its machine was lost', async () => {
    const machine = await kosa8.machine(({ purpose }) => purpose.kind === 'sandbox' && purpose.name === 'db')
    process.kill(machine.pid, 'SIGKILL')
    await vi.waitFor(async () => expect((await db.describe()).state).toBe('gone'), { timeout: PATIENCE_MS })
    await db.rewind()
    const back = await tick()
    await ticksAfter(back)
  })

  it('is forked while it runs: each clone goes on from the same moment, and so does it', async () => {
    await sh('echo shared > /shared')
    const clones = await db.fork({ names: ['left', 'right'] })
    expect(clones.map(({ error }) => error)).toEqual([null, null])
    await clones[0]?.sandbox?.exec(['sh', '-c', 'echo left > /shared'])
    const read = async (sandbox: SandboxHandle | null | undefined) => (await sandbox?.exec(['sh', '-c', 'hostname; cat /shared']))?.stdout
    expect([await read(clones[0]?.sandbox), await read(clones[1]?.sandbox), await sh('cat /shared')]).toEqual(['left\nleft\n', 'right\nshared\n', 'shared'])
    await ticksAfter(await tick())
    for (const { sandbox } of clones) await sandbox?.delete()
    expect(await readdir(`${kosa8.paths.checkpoints}/db`)).toEqual(['db-ckpt-1'])
  })

  it('opens a shell in a terminal whose size nobody has set', async () => {
    const command = `${process.execPath} ${findPackageRoot()}/dist/src/cli/main.js shell db`
    const { code, stdout } = await runProgram('script', ['-qec', command, '/dev/null'], { env: kosa8.env, stdin: 'stty size\nexit 3\n' })
    expect({ code, said: stdout.toString() }).toEqual({ code: 3, said: expect.stringContaining('24 100') as string })
  })

  it('takes folders in and gives them back unchanged', async () => {
    await sh('mkdir -p /out/sub && echo text > /out/sub/file && ln -s sub/file /out/link && chmod 755 /out/sub/file')
    await kosa8.ask(['cp', 'db:/out', `${kosa8.folder}/out`])
    await kosa8.ask(['cp', `${kosa8.folder}/out`, 'db:/in'])
    expect(await sh('cat /in/sub/file; readlink /in/link; stat -c %a /in/sub/file')).toBe('text\nsub/file\n755')
    await kosa8.ask(['cp', 'db:/in/sub/file', `${kosa8.folder}/file`])
    expect(await readdir(`${kosa8.folder}/out`)).toEqual(['link', 'sub'])
  })

  it('gets no named pipe, socket or device of a folder and gives none back; both times they are named', async () => {
    const folder = `${kosa8.folder}/special`
    await mkdir(folder)
    await writeFile(`${folder}/file`, 'text')
    await runProgram('mkfifo', Array.from({ length: 12 }, (_, n) => `${folder}/pipe-${n + 1}`))
    const many = await kosa8.type(['cp', folder, 'db:/special'])
    expect(many).toMatchObject({ status: 0, stderr: expect.stringMatching(/^left out 12 special files: \.\/pipe-\d+(, \.\/pipe-\d+){9} and 2 more\n$/) as string })
    expect(await sh('ls /special')).toBe('file')
    expect(JSON.parse(await kosa8.ask(['cp', folder, 'db:/again', '--json']))).toMatchObject({
      target: '/again', skipped: expect.arrayContaining(['./pipe-1', './pipe-12']) as string[],
    })
    await sh('mknod /special/zero c 1 5; mkfifo /special/pipe')
    const back = await kosa8.type(['cp', 'db:/special', `${kosa8.folder}/back`])
    expect(back).toMatchObject({ status: 0, stderr: expect.stringMatching(/^left out 2 special files: (\.\/zero, \.\/pipe|\.\/pipe, \.\/zero)\n$/) as string })
    expect(await readdir(`${kosa8.folder}/back`)).toEqual(['file'])
  })

  it.each([
    ['a named pipe', 'pipe-1', /pipe-1 is neither a file nor a folder\nhint: to copy what comes out of it: … \| kosa8 exec db -- /],
    ['a device', '/dev/zero', /^kosa8: \/dev\/zero is neither a file nor a folder\n/],
    ['a file that cannot be read', '/proc/self/mem', /^kosa8: \/proc\/self\/mem cannot be read: EIO/],
  ])('gets nothing of %s that is to be copied by itself', async (_what, source, message) => {
    expect(await kosa8.type(['cp', source, 'db:/alone'], { cwd: `${kosa8.folder}/special` })).toMatchObject({ status: 2, stdout: '', stderr: expect.stringMatching(message) as string })
    expect(await sh('ls /alone 2>&1 | grep -c "No such"')).toBe('1')
  })

  it('holds its image: that cannot be removed', async () => {
    expect(await kosa8.type(['image', 'rm', 'base'])).toMatchObject({ status: 2, stderr: expect.stringMatching(/^kosa8: image base is used by checkpoint db-ckpt-1, sandbox db\nhint: remove what uses it first \(kosa8 rm, /) as string })
  })

  it('leaves nothing behind', async () => {
    await kosa8.ask(['rm', 'db'])
    expect(await kosa8.listLeftovers()).toMatchObject({ machines: [], records: [], layers: [], checkpoints: [], sandboxes: [], reservations: [] })
  })
})
