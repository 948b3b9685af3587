/**
 * A home on a disk that is really full: what is refused, what goes on, what is said.
 */
import { mkdir, readdir, rm, statfs, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, expect, it } from 'vitest'
import { runProgram } from '../../src/util/spawn.js'
import { shell } from '../helpers/git-fixture.js'
import { Kosa8 } from '../helpers/kosa8.js'

const DISK_MIB = 400
/** What a run is left: enough for its checkpoint of about 120 MiB, and less than its approach writes on top. */
const LEFT_MIB = 200
const WRITTEN_MIB = 150

let kosa8: Kosa8 | undefined
let isMounted = false

afterAll(async () => {
  if (isMounted) await kosa8?.type(['daemon', 'stop'])
  for (const { pid } of isMounted ? kosa8?.processes() ?? [] : []) process.kill(pid, 'SIGKILL')
  if (isMounted) await runProgram('umount', ['-l', kosa8!.paths.home])
  await kosa8?.close()
})

/** Takes all but so much. */
async function leave(folder: string, leftMib: number): Promise<void> {
  const { bavail, bsize } = await statfs(folder)
  shell(folder, `fallocate -l ${bavail * bsize - leftMib * 1024 * 1024} filler`)
}

/** Takes every byte that is left. */
async function fill(folder: string): Promise<void> {
  const { bavail, bsize } = await statfs(folder)
  await writeFile(path.join(folder, 'filler'), Buffer.alloc(bavail * bsize)).catch(() => undefined)
  await writeFile(path.join(folder, 'rest'), Buffer.alloc(bsize)).catch(() => undefined)
}

it('nothing that has no room is begun or ends anything, and all goes on once there is room', async ({ skip }) => {
  kosa8 = await Kosa8.open()
  const { home } = kosa8.paths
  await mkdir(home, { recursive: true })
  // No tmpfs: where that is full, even reading memory nobody has written ends a process that has it mapped.
  shell(kosa8.folder, `truncate -s ${DISK_MIB}M disk`)
  const made = await runProgram('sh', ['-c', 'mkfs.ext4 -q -F -m 0 "$0" && mount -o loop "$0" "$1"', path.join(kosa8.folder, 'disk'), home])
  isMounted = made.code === 0
  if (!isMounted) skip('a small file system can only be mounted by root, with the program mount')
  const repository = await kosa8.makeRepository('project', { 'kosa8.yaml': 'image: base\nmem: 192M\n' }, { a: 'true' })
  await kosa8.ask(['create', 'box', '--mem', '192M'])
  await kosa8.ask(['exec', 'box', '--', 'sh', '-c', 'echo before > /run/state'])
  await kosa8.ask(['checkpoint', 'box'])
  await kosa8.ask(['exec', 'box', '--', 'sh', '-c', 'echo after > /run/state'])
  await fill(home)
  const refused = [['checkpoint', 'box'], ['rewind', 'box', '-y'], ['create', 'other'], ['fork', '--approaches', 'a', '--repo', repository]]
  for (const command of refused) {
    const { status, stderr } = await kosa8.type(command)
    expect(status, command.join(' ')).toBe(3)
    expect(stderr, command.join(' ')).toMatch(/needs (at least )?\d+ MiB on the disk of .* 0 MiB are free; nothing was lost: .*\nhint: make room there /)
  }
  // The next daemon starts in the room the home has set aside.
  process.kill((await kosa8.daemon()).pid, 'SIGKILL')
  await fill(home)
  expect(await kosa8.ask(['exec', 'box', '--', 'cat', '/run/state'])).toBe('after\n')
  expect(JSON.parse(await kosa8.ask(['runs', 'ls', '--json']))).toEqual([])
  for (const name of ['filler', 'rest']) await rm(path.join(home, name), { force: true })
  await kosa8.ask(['rewind', 'box', '-y'])
  expect(await kosa8.ask(['exec', 'box', '--', 'cat', '/run/state'])).toBe('before\n')
  await kosa8.ask(['rm', 'box'])
}, 120_000)

it('a fork whose disk fills up under it says so, and goes on once there is room', async ({ skip }) => {
  if (!isMounted) skip('a small file system can only be mounted by root, with the program mount')
  const { home } = kosa8!.paths
  const repository = await kosa8!.makeRepository('growing', { 'kosa8.yaml': 'image: base\nmem: 192M\n' }, {
    a: `dd if=/dev/zero of=/var/large bs=1M count=${WRITTEN_MIB} conv=fsync; echo done > file`,
  })
  await leave(home, LEFT_MIB)
  const { run, fork } = await kosa8!.startFork(['--approaches', 'a', '--repo', repository])
  await new Promise<void>((resolve) => fork.process.stderr!.on('data', () => { if (fork.stderrSoFar().includes('is full: the run waits for room')) resolve() }))
  await rm(path.join(home, 'filler'))
  const { status, stdout, stderr } = await fork.ended
  expect(status, stderr).toBe(0)
  expect(JSON.parse(stdout)).toMatchObject({ state: 'completed', trials: [{ state: 'completed', diff: { files: 1 }, error: null }] })
  await kosa8!.until(kosa8!.paths.runDirectory(run), async () => await kosa8!.runs.isTidied(run) || null)
  expect(await Promise.all([kosa8!.paths.layers, kosa8!.paths.checkpoints, kosa8!.paths.reservations].map((folder) => readdir(folder)))).toEqual([[], [], []])
}, 120_000)
