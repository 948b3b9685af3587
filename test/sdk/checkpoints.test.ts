import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { Kosa8Error } from '../../src/errors/kosa8-error.js'
import { FileCheckpointStore, Kosa8Client, MAX_CHECKPOINTS_PER_SANDBOX, MemoryCheckpointStore } from '../../src/sdk/index.js'
import { serveHome } from '../daemon-server/serve.js'

async function openDb() {
  const { home, services } = await serveHome()
  const client = new Kosa8Client({ home })
  await client.createSandbox({ name: 'db', egress: 'deny' })
  return { home, client, db: client.sandbox('db'), sandboxes: services.sandboxes, snapshots: () => services.sandboxes.all.get('db')?.snapshots.map(({ id }) => id) }
}

describe('checkpoints', () => {
  it('have ids by number, their label, and who took them', async () => {
    const { client, db } = await openDb()
    const a = await db.checkpoint({ label: 'before migration' })
    expect(a).toMatchObject({ checkpoint: { id: 'db-ckpt-1', label: 'before migration', sandbox: 'db', by: 'you' }, evicted: [], pause_ms: 13 })
    expect((await client.checkpoint('db', { by: 'assistant' })).checkpoint).toMatchObject({ id: 'db-ckpt-2', label: null, by: 'assistant' })
    expect((await db.checkpoints()).map((c) => c.id)).toEqual(['db-ckpt-1', 'db-ckpt-2'])
    expect(await client.listCheckpoints('db')).toEqual(await db.checkpoints())
  })

  it('never use a number twice', async () => {
    const { db } = await openDb()
    await db.checkpoint()
    await db.checkpoint()
    await db.rewind({ to: 'db-ckpt-1' })
    expect((await db.checkpoint()).checkpoint.id).toBe('db-ckpt-3')
  })

  it('are ten: the eleventh evicts the oldest once it exists', async () => {
    const { db, sandboxes, snapshots } = await openDb()
    for (let n = 1; n <= MAX_CHECKPOINTS_PER_SANDBOX; n += 1) expect((await db.checkpoint()).evicted).toEqual([])
    const seen: string[][] = []
    const remove = sandboxes.deleteSnapshot.bind(sandboxes)
    sandboxes.deleteSnapshot = async (name, id) => { seen.push(snapshots() ?? []); await remove(name, id) }
    expect((await db.checkpoint()).evicted).toEqual(['db-ckpt-1'])
    expect(seen).toEqual([Array.from({ length: 11 }, (_, n) => `db-ckpt-${n + 1}`)])
    expect(snapshots()).toEqual((await db.checkpoints()).map(({ id }) => id))
    expect(snapshots()).toHaveLength(10)
  })

  it('evict nothing when the new one could not be taken', async () => {
    const { db, sandboxes, snapshots } = await openDb()
    for (let n = 0; n < 10; n += 1) await db.checkpoint()
    sandboxes.snapshot = () => Promise.reject(new Kosa8Error('DISK_FULL', 'no space left'))
    await expect(db.checkpoint()).rejects.toMatchObject({ code: 'DISK_FULL' })
    expect(snapshots()).toHaveLength(10)
  })

  it('leave no snapshot behind whose record could not be written', async () => {
    const { home, snapshots } = await openDb()
    const store = new MemoryCheckpointStore()
    store.update = () => Promise.reject(new Error('the store is down'))
    await expect(new Kosa8Client({ home, checkpointStore: store }).checkpoint('db')).rejects.toThrow('the store is down')
    expect(snapshots()).toEqual([])
  })

  it('are taken and rewound with their list or not at all where its disk is full, and removed without it', async () => {
    const { home, db, sandboxes, snapshots } = await openDb()
    for (const label of ['one', 'two']) await db.checkpoint({ label })
    const store = new FileCheckpointStore(path.join(home, 'checkpoints.json'))
    store.update = () => Promise.reject(Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' }))
    const full = new Kosa8Client({ home, checkpointStore: store }).sandbox('db')
    await expect(full.checkpoint()).rejects.toMatchObject({ code: 'DISK_FULL', message: expect.stringContaining(`on the disk of ${home}`) as string })
    await expect(full.rewind({ to: 'one' })).rejects.toMatchObject({
      code: 'DISK_FULL', message: expect.stringMatching(/: db is back at db-ckpt-1, and its later checkpoints are still there$/) as string,
    })
    expect(snapshots()).toEqual(['db-ckpt-1', 'db-ckpt-2'])
    expect((await full.deleteCheckpoint('two')).id).toBe('db-ckpt-2')
    expect((await full.checkpoints()).map(({ label }) => label)).toEqual(['one'])
    expect(await full.delete()).toEqual({ ok: true, checkpoints_dropped: 1 })
    expect(sandboxes.all.has('db')).toBe(false)
  })

  it('are removed by id or label, and the others stay', async () => {
    const { db, snapshots } = await openDb()
    for (const label of ['one', 'two', 'three']) await db.checkpoint({ label })
    expect((await db.deleteCheckpoint('TWO')).id).toBe('db-ckpt-2')
    expect(snapshots()).toEqual(['db-ckpt-1', 'db-ckpt-3'])
    expect((await db.checkpoints()).map(({ label }) => label)).toEqual(['one', 'three'])
    expect((await db.rewind({ to: 'DB-CKPT-3' })).checkpoint.id).toBe('db-ckpt-3')
    expect((await db.checkpoint({ label: ' ' })).checkpoint).toMatchObject({ id: 'db-ckpt-4', label: null })
    await db.deleteCheckpoint('db-ckpt-4')
    await expect(db.deleteCheckpoint('two')).rejects.toMatchObject({ code: 'CHECKPOINT_UNKNOWN', hint: 'it can go back to: db-ckpt-1, db-ckpt-3' })
  })

  it('of a sandbox that was made anew under its name do not come back', async () => {
    const { home, client, db } = await openDb()
    await db.checkpoint({ label: 'old' })
    await new Kosa8Client({ home, checkpointStore: new MemoryCheckpointStore() }).deleteSandbox('db')
    await client.createSandbox({ name: 'db' })
    expect(await db.checkpoints()).toEqual([])
    expect((await db.checkpoint({ label: 'new' })).checkpoint.id).toBe('db-ckpt-1')
    expect((await db.checkpoints()).map(({ label }) => label)).toEqual(['new'])
  })
})

describe('a rewind', () => {
  it('goes to the most recent one, or to an id or a label without regard to case', async () => {
    const { client, db } = await openDb()
    for (const label of ['One', 'two', 'ONE', 'four']) await db.checkpoint({ label })
    expect((await client.rewind('db')).checkpoint.label).toBe('four')
    expect((await db.rewind({ to: 'one' })).checkpoint.id).toBe('db-ckpt-3')
    expect((await db.rewind({ to: 'db-ckpt-2' })).checkpoint.label).toBe('two')
  })

  it('drops the later ones with their snapshots', async () => {
    const { db, snapshots } = await openDb()
    for (const label of ['a', 'b', 'c']) await db.checkpoint({ label })
    expect(await db.rewind({ to: 'a' })).toMatchObject({ checkpoint: { id: 'db-ckpt-1' }, restore_ms: 90, dropped: ['db-ckpt-2', 'db-ckpt-3'] })
    expect(snapshots()).toEqual(['db-ckpt-1'])
    expect((await db.checkpoints()).map(({ id }) => id)).toEqual(['db-ckpt-1'])
  })

  it('that fails drops nothing', async () => {
    const { db, sandboxes, snapshots } = await openDb()
    await db.checkpoint({ label: 'a' })
    await db.checkpoint({ label: 'b' })
    sandboxes.restoreFailure = new Kosa8Error('CHECKPOINT_CORRUPT', 'it is damaged')
    sandboxes.stateAfterFailure = 'running'
    await expect(db.rewind({ to: 'a' })).rejects.toMatchObject({ code: 'CHECKPOINT_CORRUPT', message: 'it is damaged' })
    expect(snapshots()).toEqual(['db-ckpt-1', 'db-ckpt-2'])
  })

  it('that fails after the sandbox was removed tells the call that brings it back', async () => {
    const { client, db, sandboxes } = await openDb()
    await db.checkpoint({ label: 'a' })
    sandboxes.restoreFailure = new Kosa8Error('MACHINE_START_FAILED', 'QEMU did not start')
    const error = await db.rewind().catch((thrown: unknown) => thrown)
    expect(Kosa8Error.isInstance(error)).toBe(true)
    expect(error).toMatchObject({ code: 'MACHINE_START_FAILED', message: expect.stringMatching(/^QEMU did not start\..* restoreSnapshot\("db", "db-ckpt-1"\)$/) as string })
    sandboxes.restoreFailure = null
    expect(await client.restoreSnapshot('db', 'db-ckpt-1')).toMatchObject({ restoreMs: 90 })
  })

  it('that finds neither sandbox nor checkpoint any more promises no way back', async () => {
    const { db, sandboxes } = await openDb()
    await db.checkpoint()
    for (const code of ['SANDBOX_UNKNOWN', 'CHECKPOINT_UNKNOWN'] as const) {
      sandboxes.restoreFailure = new Kosa8Error(code, 'somebody removed it')
      const error = await db.rewind().catch((thrown: unknown) => thrown as Kosa8Error)
      expect(error).toMatchObject({ code })
      expect((error as Kosa8Error).message).toBe('somebody removed it')
      sandboxes.stateAfterFailure = 'gone'
    }
  })

  it('to nowhere says where it can go', async () => {
    const { db } = await openDb()
    await expect(db.rewind()).rejects.toMatchObject({ code: 'CHECKPOINT_UNKNOWN', message: 'sandbox db has no checkpoint', hint: 'take one with: kosa8 checkpoint db' })
    await db.checkpoint()
    await expect(db.rewind({ to: 'x' })).rejects.toMatchObject({ message: 'sandbox db has no checkpoint "x"', hint: 'it can go back to: db-ckpt-1' })
  })

  it('can go to a snapshot its list does not have', async () => {
    const { home, db } = await openDb()
    await db.checkpoint({ label: 'a' })
    const isolated = new Kosa8Client({ home, checkpointStore: new MemoryCheckpointStore() })
    await db.checkpoint({ label: 'b' })
    expect((await isolated.rewind('db', { to: 'db-ckpt-1' })).dropped).toEqual([])
    expect((await isolated.checkpoints.listUnrecorded('db')).map(({ id }) => id)).toEqual(['db-ckpt-1', 'db-ckpt-2'])
  })
})

describe('the store of a client', () => {
  it('is the file of the command line, memory, or any file', async () => {
    const { home, client } = await openDb()
    expect((client.checkpoints.store as FileCheckpointStore).path).toBe(path.join(home, 'checkpoints.json'))
    const isolated = new Kosa8Client({ home, checkpointStore: new MemoryCheckpointStore() })
    await isolated.createSandbox({ name: 'scratch', egress: 'deny', memMb: 512 })
    await isolated.checkpoint('scratch', { label: 'private' })
    expect((await isolated.listCheckpoints('scratch')).map((x) => x.id)).toEqual(['scratch-ckpt-1'])
    expect(await client.listCheckpoints('scratch')).toEqual([])
    const perJob = new Kosa8Client({ home, checkpointStore: new FileCheckpointStore(path.join(home, 'job-42.json')) })
    expect((perJob.checkpoints.store as FileCheckpointStore).path).toBe(path.join(home, 'job-42.json'))
    expect(await isolated.deleteSandbox('scratch')).toEqual({ ok: true, checkpoints_dropped: 1 })
    expect(await isolated.checkpoints.store.load()).toMatchObject({ sandboxes: {} })
  })
})

describe('a fork of a sandbox', () => {
  it('has one entry per clone, each a sandbox or an error', async () => {
    const { client, db } = await openDb()
    await client.createSandbox({ name: 'b' })
    const [a, b] = await db.fork({ names: ['a', 'b'] })
    expect(a).toMatchObject({ name: 'a', error: null })
    expect(await a?.sandbox?.describe()).toMatchObject({ name: 'a', state: 'running' })
    expect(b).toMatchObject({ name: 'b', sandbox: null, error: { code: 'SANDBOX_EXISTS' } })
  })

  it('names its clones by itself', async () => {
    const { client, db } = await openDb()
    await client.createSandbox({ name: 'db-fork-1' })
    expect((await db.fork({ count: 2 })).map(({ name }) => name)).toEqual(['db-fork-2', 'db-fork-3'])
  })
})
