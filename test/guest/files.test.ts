import { randomBytes } from 'node:crypto'
import { mkdir, readdir, readFile, stat, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { Readable } from 'node:stream'
import { buffer, text } from 'node:stream/consumers'
import { expect, test } from 'vitest'
import { openGuestSession } from '../../src/guest/agent-session.js'
import { followLinks } from '../../src/guest/follow-links.js'
import { runProgram } from '../../src/util/spawn.js'
import { useAgent } from './agent-under-test.js'

const bench = useAgent()

const read = async (name: string, bytesMax = 10_000_000): Promise<Buffer> =>
  buffer(await bench.session.readFile(path.join(bench.folder, name), { bytesMax }))

test('a file written in the guest is read back unchanged, with its mode, in folders that were missing', async () => {
  const content = randomBytes(3_000_000)
  await bench.session.writeFile(path.join(bench.folder, 'a/b/c.bin'), content, { mode: 0o750 })
  expect((await read('a/b/c.bin')).equals(content)).toBe(true)
  expect((await stat(path.join(bench.folder, 'a/b/c.bin'))).mode & 0o777).toBe(0o750)
  expect(await readdir(path.join(bench.folder, 'a/b'))).toEqual(['c.bin'])
})

test('a link is followed nowhere in a path', async () => {
  await mkdir(path.join(bench.folder, 'real'))
  await writeFile(path.join(bench.folder, 'real/file'), 'secret')
  await symlink('real', path.join(bench.folder, 'linked'))
  await symlink('real/file', path.join(bench.folder, 'link'))
  const refused = { code: 'GUEST_COMMAND_FAILED', message: expect.stringContaining('symbolic link') as string }
  await expect(read('link')).rejects.toMatchObject(refused)
  await expect(read('linked/file')).rejects.toMatchObject(refused)
  await expect(bench.session.listFiles(path.join(bench.folder, 'linked'), { entriesMax: 9 })).rejects.toMatchObject(refused)
  await expect(bench.session.writeFile(path.join(bench.folder, 'linked/new'), 'x')).rejects.toMatchObject(refused)
  expect(await readdir(path.join(bench.folder, 'real'))).toEqual(['file'])
})

test('a path that is asked for by name leads over links as it does for a program in the guest', async () => {
  await mkdir(path.join(bench.folder, 'real'))
  await writeFile(path.join(bench.folder, 'real/file'), 'found')
  await symlink('real', path.join(bench.folder, 'linked'))
  await symlink('linked/file', path.join(bench.folder, 'link'))
  await symlink('round', path.join(bench.folder, 'round'))
  const follow = <T>(name: string, work: (place: string) => Promise<T>) => followLinks(bench.session, path.join(bench.folder, name), work)
  const readAt = (place: string) => bench.session.readFile(place, { bytesMax: 99 }).then(text)
  expect(await follow('link', readAt)).toBe('found')
  expect(await follow('linked/file', readAt)).toBe('found')
  await follow('linked', (folder) => bench.session.writeFile(path.join(folder, 'new'), 'x'))
  expect(await readFile(path.join(bench.folder, 'real/new'), 'utf8')).toBe('x')
  await expect(follow('round', readAt)).rejects.toMatchObject({ message: expect.stringContaining('symbolic link') as string })
  await expect(follow('linked/missing', readAt)).rejects.toMatchObject({ message: expect.stringContaining('no such file') as string })
})

test('writing onto a link replaces the link, not what it points to', async () => {
  await writeFile(path.join(bench.folder, 'target'), 'kept')
  await symlink('target', path.join(bench.folder, 'link'))
  await bench.session.writeFile(path.join(bench.folder, 'link'), 'new')
  expect(await readFile(path.join(bench.folder, 'target'), 'utf8')).toBe('kept')
  expect(await readFile(path.join(bench.folder, 'link'), 'utf8')).toBe('new')
})

test('a FIFO, a folder and a missing file are refused at once', async () => {
  await runProgram('mkfifo', [path.join(bench.folder, 'fifo')])
  await expect(read('fifo')).rejects.toMatchObject({ code: 'GUEST_COMMAND_FAILED', message: expect.stringMatching(/failed: not a regular file$/) as string })
  await expect(read('.')).rejects.toMatchObject({ code: 'GUEST_COMMAND_FAILED' })
  await expect(read('missing')).rejects.toMatchObject({ code: 'GUEST_COMMAND_FAILED', details: { errno: 2 } })
})

test('a file beyond the limit is refused before a byte of it is sent', async () => {
  await writeFile(path.join(bench.folder, 'big'), Buffer.alloc(5_000))
  await expect(read('big', 4_999)).rejects.toMatchObject({ code: 'LIMIT_EXCEEDED' })
  expect((await read('big', 5_000)).length).toBe(5_000)
})

test('a reader that gives up leaves no command behind', async () => {
  await writeFile(path.join(bench.folder, 'big'), Buffer.alloc(5_000_000))
  const stream = await bench.session.readFile(path.join(bench.folder, 'big'), { bytesMax: 5_000_000 })
  stream.destroy()
  await new Promise((resolve) => stream.once('close', resolve))
  await bench.session.writeFile(path.join(bench.folder, 'next'), 'fine')
  expect((await read('next')).toString()).toBe('fine')
})

test('a source that fails half-way leaves the former file and no temporary one', async () => {
  await writeFile(path.join(bench.folder, 'file'), 'former')
  const source = Readable.from((async function* () {
    yield Buffer.alloc(100_000)
    throw new Error('the source broke')
  })())
  await expect(bench.session.writeFile(path.join(bench.folder, 'file'), source)).rejects.toThrow('the source broke')
  expect(await readdir(bench.folder)).toEqual(['file'])
  expect(await readFile(path.join(bench.folder, 'file'), 'utf8')).toBe('former')
})

test('a transfer whose session ends leaves the former file and no temporary one', async () => {
  const process = await bench.session.exec({ argv: ['@put', path.join(bench.folder, 'file'), '644', ''], stdin: true })
  process.stdin?.write('half')
  await bench.session.ping()
  bench.session.end()
  bench.session = await openGuestSession(bench.agent.openChannel())
  const waiting = await bench.session.exec({ argv: ['sh', '-c', `while [ -n "$(ls -A ${bench.folder})" ]; do sleep 0.05; done`] })
  await waiting.exited
  expect(await readdir(bench.folder)).toEqual([])
})

test('a folder that stands in the way is told as an error', async () => {
  await mkdir(path.join(bench.folder, 'taken'))
  await expect(bench.session.writeFile(path.join(bench.folder, 'taken'), 'x')).rejects.toMatchObject({ code: 'GUEST_COMMAND_FAILED' })
  expect(await readdir(bench.folder)).toEqual(['taken'])
})

test('a listing has kinds and sizes, names with blanks, and does not enter .git, node_modules or links', async () => {
  await mkdir(path.join(bench.folder, 'sub dir/.git/objects'), { recursive: true })
  await mkdir(path.join(bench.folder, 'node_modules/left-pad'), { recursive: true })
  await writeFile(path.join(bench.folder, 'sub dir/new\nline'), 'four')
  await symlink('/etc', path.join(bench.folder, 'link'))
  const entries = await bench.session.listFiles(bench.folder, { entriesMax: 100 })
  const names = entries.map(({ kind, path: name }) => `${kind} ${name}`).sort()
  expect(names).toEqual(['file sub dir/new\nline', 'folder node_modules', 'folder sub dir', 'folder sub dir/.git', 'link link'])
  expect(entries.find(({ kind }) => kind === 'file')?.sizeBytes).toBe(4)
})

test('a listing stops at its limit and says so', async () => {
  for (let i = 0; i < 10; i++) await writeFile(path.join(bench.folder, String(i)), '')
  const entries = await bench.session.listFiles(bench.folder, { entriesMax: 4 })
  expect(entries.map(({ kind }) => kind)).toEqual(['file', 'file', 'file', 'file', 'truncated'])
  expect(await bench.session.listFiles(bench.folder, { entriesMax: 10 })).toHaveLength(10)
})
