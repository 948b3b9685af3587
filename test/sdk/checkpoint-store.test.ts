import { once } from 'node:events'
import { readdir, readFile, utimes, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import type { SandboxName } from '../../src/model/ids.js'
import { FileCheckpointStore, MemoryCheckpointStore, type CheckpointStore } from '../../src/sdk/checkpoint-store.js'
import { serveHome, temporaryFolder } from '../daemon-server/serve.js'
import { startScript } from '../helpers/script.js'

const WRITER = new URL('./list-writer.ts', import.meta.url)
/** Of each of 8. */
const RECORDS_PER_WRITER = 125
const record = (id: string) => ({ id, sandbox: 'db', label: 'why', by: 'you', created_at: '2026-01-02T03:04:05.000Z' })

async function add(store: CheckpointStore, id: string): Promise<void> {
  await store.update((list) => ({ ...list, sandboxes: { db: [...list.sandboxes['db'] ?? [], record(id)] } }))
}

describe.each([
  ['in a file', async () => new FileCheckpointStore(path.join(await temporaryFolder(), 'made', 'list.json'))],
  ['in memory', async () => new MemoryCheckpointStore()],
])('a list of checkpoints %s', (_place, make) => {
  it('is empty at first and then has what updates made of it', async () => {
    const store = await make()
    expect((await store.load()).sandboxes).toEqual({})
    await add(store, 'db-ckpt-1')
    await add(store, 'db-ckpt-2')
    expect((await store.load()).sandboxes).toEqual({ db: [record('db-ckpt-1'), record('db-ckpt-2')] })
  })

  it('loses no update of many made at once', async () => {
    const store = await make()
    await Promise.all(Array.from({ length: 20 }, (_, n) => add(store, `db-ckpt-${n}`)))
    expect((await store.load()).sandboxes['db']).toHaveLength(20)
  })

  it('is as before when an update fails', async () => {
    const store = await make()
    await add(store, 'db-ckpt-1')
    await expect(store.update(() => { throw new Error('no') })).rejects.toThrow('no')
    await add(store, 'db-ckpt-2')
    expect((await store.load()).sandboxes['db']).toHaveLength(2)
  })
})

describe('a list of checkpoints in a file', () => {
  it('loses no record of 1,000 that 8 processes write at once, by command line and SDK, while a ninth is killed with the lock in its hands', async () => {
    const { home, services } = await serveHome()
    const file = path.join(home, 'checkpoints.json')
    const writers = Array.from({ length: 8 }, (_, n) => ({ how: n % 2 === 0 ? 'cli' : 'sdk', sandboxes: Array.from({ length: 13 }, (__, m) => `w${n}-${m}`) }))
    const names = writers.flatMap(({ sandboxes }) => sandboxes)
    for (const name of names) await services.sandboxes.create({ name: name as SandboxName, image: 'base', memoryMib: 256, cpus: 1, egress: 'deny' }, new AbortController().signal)
    const killed = startScript(WRITER, ['hold', file])
    await once(killed.stdout!, 'data')
    const running = writers.map(({ how, sandboxes }) => startScript(WRITER, [how, home, String(RECORDS_PER_WRITER), ...sandboxes]))
    await Promise.all(running.map((writer) => once(writer.stdout!, 'data')))
    const ends = Promise.all(running.map((writer) => once(writer, 'exit')))
    killed.kill('SIGKILL')
    expect((await ends).map(([code]) => code as number)).toEqual(running.map(() => 0))
    const list = (await new FileCheckpointStore(file).load()).sandboxes
    const taken = (name: string): string[] => services.sandboxes.all.get(name)?.snapshots.map(({ id }) => id) ?? []
    for (const name of names) expect(list[name]?.map(({ id }) => id)).toEqual(taken(name))
    expect(names.flatMap(taken)).toHaveLength(1000)
  }, 300_000)

  it('goes on after a writer was killed while it held the lock', async () => {
    const folder = await temporaryFolder()
    const file = path.join(folder, 'list.json')
    const holder = startScript(WRITER, ['hold', file])
    await once(holder.stdout!, 'data')
    holder.kill('SIGKILL')
    await once(holder, 'exit')
    expect(await readdir(folder)).toContain('list.json.lock')
    await Promise.all([1, 2, 3].map((n) => add(new FileCheckpointStore(file), `db-ckpt-${n}`)))
    expect((await new FileCheckpointStore(file).load()).sandboxes['db']).toHaveLength(3)
    expect(await readdir(folder)).not.toContain('list.json.lock')
  })

  it('takes over a lock whose holder cannot be looked at only once it is old', async () => {
    const file = path.join(await temporaryFolder(), 'list.json')
    const lock = `${file}.lock`
    await writeFile(lock, JSON.stringify({ pid: 1, startTicks: 1, place: 'another boot' }))
    const waiting = add(new FileCheckpointStore(file), 'db-ckpt-1')
    await expect.poll(async () => (await readdir(path.dirname(file))).length).toBeGreaterThan(0)
    expect(await readFile(lock, 'utf8')).toContain('another boot')
    const longAgo = new Date(Date.now() - 120_000)
    await utimes(lock, longAgo, longAgo)
    await waiting
  })

  it('of another form is refused by name, and left as it is', async () => {
    const file = path.join(await temporaryFolder(), 'list.json')
    await writeFile(file, '{"format":"kosa8.checkpoints/9"}')
    const store = new FileCheckpointStore(file)
    await expect(store.load()).rejects.toMatchObject({ code: 'STORE_CORRUPT', message: expect.stringContaining(file) as string })
    await expect(add(store, 'db-ckpt-1')).rejects.toMatchObject({ code: 'STORE_CORRUPT' })
    expect(await readFile(file, 'utf8')).toBe('{"format":"kosa8.checkpoints/9"}')
  })
})
