/** The rules of approvals: the real book behind the real server, asked by the SDK as an agent and as the person. */
import { createPrivateKey, sign } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { Kosa8Error } from '../../src/errors/kosa8-error.js'
import { callMethod, openStream } from '../../src/protocol/client.js'
import { GUARDED_CALLS } from '../../src/protocol/guarded-calls.js'
import { METHODS } from '../../src/protocol/methods.js'
import { Kosa8Client } from '../../src/sdk/client.js'
import { createKeyPair, fingerprintOf } from '../../src/util/ed25519.js'
import { serveHome } from './serve.js'

const MINE = createKeyPair(null)
const OTHER = createKeyPair(null)

/** A sandbox with approvals and two checkpoints, what an agent does with it, and the person with the key. */
async function guardedWeb() {
  const { home, socketPath, services } = await serveHome()
  let second = 0
  services.sandboxes.now = () => new Date(Date.parse('2026-01-02T03:05:00Z') + (second += 1) * 1000).toISOString()
  const client = new Kosa8Client({ home, startsDaemon: false })
  await client.createSandbox({ name: 'web', approvals: MINE.publicKey })
  await client.checkpoint('web', { label: 'before migration' })
  await client.checkpoint('web')
  const approve = async (id: string, privateKey = MINE.privateKey) => client.approvals.approve(await client.approvals.get(id), { privateKey })
  /** Makes the call without an approval. @returns the id of the request that waits then */
  const ask = async (call: () => Promise<unknown>): Promise<string> => {
    const error = await call().catch((thrown: unknown) => thrown)
    expect(error).toMatchObject({ code: 'APPROVAL_REQUIRED' })
    return (error as Kosa8Error).details['approval'] as string
  }
  const askToRewind = () => ask(() => client.rewind('web', { to: 'web-ckpt-1' }))
  return { home, socketPath, services, client, approve, ask, askToRewind }
}

describe('a sandbox with approvals', () => {
  it('does none of the guarded calls without one, and asks once for each', async () => {
    const { socketPath, services, client } = await guardedWeb()
    const inputs = {
      restoreSnapshot: { params: { name: 'web' }, body: { snapshot: 'web-ckpt-1' } }, deleteSandbox: { params: { name: 'web' } },
      setEgress: { params: { name: 'web' }, body: { egress: 'a.example,*.b.example:8443' } },
      deleteSnapshot: { params: { name: 'web', id: 'web-ckpt-1' } },
    } satisfies Record<keyof typeof GUARDED_CALLS, object>
    for (const name of Object.keys(GUARDED_CALLS) as (keyof typeof GUARDED_CALLS)[]) {
      const call = () => callMethod(socketPath, name, inputs[name] as never)
      await expect(call(), name).rejects.toMatchObject({ code: 'APPROVAL_REQUIRED' })
      await expect(call(), name).rejects.toMatchObject({ code: 'APPROVAL_REQUIRED' })
    }
    expect(await client.approvals.list()).toMatchObject([
      { action: 'rewind', target: 'web-ckpt-1', label: 'before migration', lost: ['web-ckpt-2'], state: 'waiting' },
      { action: 'delete', target: null, lost: ['web-ckpt-1', 'web-ckpt-2'] }, { action: 'egress', target: 'a.example,*.b.example:8443' },
      { action: 'delete-checkpoint', target: 'web-ckpt-1' },
    ])
    expect(services.sandboxes.all.get('web')?.snapshots).toHaveLength(2)
  })

  it('says in the error which request waits, what the person does and what to repeat', async () => {
    const { client, askToRewind } = await guardedWeb()
    const id = await askToRewind()
    await expect(client.rewind('web', { to: 'before migration' })).rejects.toMatchObject({
      message: `to rewind web to web-ckpt-1 ("before migration") needs an approval by a person; request ${id} waits for it`,
      hint: `whoever holds the key of web runs: kosa8 approve ${id}; after that: kosa8 rewind web --to web-ckpt-1 --approval ${id}`,
      details: { approval: id, sandbox: 'web', action: 'rewind', target: 'web-ckpt-1' },
    })
  })

  it('answers a guarded call without an approval with status 403', async () => {
    const { socketPath } = await guardedWeb()
    const { path, verb } = METHODS.deleteSandbox
    await expect(openStream(socketPath, { verb, path: path.replace(':name', 'web'), headers: { 'kosa8-approval': 'x' } })).rejects.toMatchObject({ code: 'USAGE' })
    expect(new Kosa8Error('APPROVAL_REQUIRED', '').exitStatus).toBe(2)
  })

  it('is rewound by one approval: put back, and the later checkpoints removed', async () => {
    const { client, approve, askToRewind } = await guardedWeb()
    const approval = await askToRewind()
    expect(await approve(approval)).toMatchObject({ state: 'approved' })
    expect(await client.rewind('web', { to: 'web-ckpt-1', approval })).toMatchObject({ dropped: ['web-ckpt-2'] })
    expect((await client.listCheckpoints('web')).map(({ id }) => id)).toEqual(['web-ckpt-1'])
  })

  it('keeps checkpoints taken after the rewind, and the one it went to, from that approval', async () => {
    const { client, services, approve, askToRewind } = await guardedWeb()
    const approval = await askToRewind()
    await approve(approval)
    await client.rewind('web', { to: 'web-ckpt-1', approval })
    services.sandboxes.now = () => new Date(Date.now() + 1000).toISOString()
    await client.checkpoint('web')
    for (const id of ['web-ckpt-3', 'web-ckpt-1']) {
      await expect(client.sandbox('web').deleteCheckpoint(id, { approval }), id).rejects.toMatchObject({ code: 'APPROVAL_MISMATCH' })
    }
  })

  it('gives way to an approval once', async () => {
    const { client, approve, askToRewind } = await guardedWeb()
    const approval = await askToRewind()
    await approve(approval)
    await client.restoreSnapshot('web', 'web-ckpt-1', { approval })
    await expect(client.restoreSnapshot('web', 'web-ckpt-1', { approval })).rejects.toMatchObject({ code: 'APPROVAL_USED' })
    await expect(approve(approval)).rejects.toMatchObject({ code: 'APPROVAL_USED' })
  })

  it('gives way once when two calls come at the same time', async () => {
    const { client, approve, askToRewind } = await guardedWeb()
    const approval = await askToRewind()
    await approve(approval)
    const both = await Promise.allSettled([1, 2].map(() => client.restoreSnapshot('web', 'web-ckpt-1', { approval })))
    expect(both.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
  })

  it('does not take an approval for another checkpoint, another act or another sandbox', async () => {
    const { client, approve, askToRewind } = await guardedWeb()
    const approval = await askToRewind()
    await approve(approval)
    await client.createSandbox({ name: 'db', approvals: MINE.publicKey })
    await expect(client.restoreSnapshot('web', 'web-ckpt-2', { approval })).rejects.toMatchObject({
      code: 'APPROVAL_MISMATCH', hint: `it allows: kosa8 rewind web --to web-ckpt-1 --approval ${approval}`,
    })
    await expect(client.deleteSandbox('web', { approval })).rejects.toMatchObject({ code: 'APPROVAL_MISMATCH' })
    await expect(client.deleteSandbox('db', { approval })).rejects.toMatchObject({ code: 'APPROVAL_MISMATCH' })
    await expect(client.deleteSandbox('db', { approval: '0'.repeat(16) })).rejects.toMatchObject({ code: 'APPROVAL_UNKNOWN' })
  })

  it('does not take an approval for an earlier sandbox of its name', async () => {
    const { client, services, approve, ask } = await guardedWeb()
    const approval = await ask(() => client.deleteSandbox('web'))
    await approve(approval)
    services.sandboxes.all.delete('web')
    services.sandboxes.createdAt = '2026-01-02T03:04:06.000Z'
    await client.createSandbox({ name: 'web', approvals: MINE.publicKey })
    await expect(client.deleteSandbox('web', { approval })).rejects.toMatchObject({ code: 'APPROVAL_MISMATCH', message: expect.stringMatching(/is for an earlier web/) as string })
  })

  it('does not take an approval for an earlier checkpoint of that id', async () => {
    const { client, services, approve, askToRewind } = await guardedWeb()
    const approval = await askToRewind()
    await approve(approval)
    await services.sandboxes.deleteSnapshot('web', 'web-ckpt-1')
    await services.sandboxes.snapshot('web', { id: 'web-ckpt-1' })
    await expect(client.restoreSnapshot('web', 'web-ckpt-1', { approval })).rejects.toMatchObject({ code: 'APPROVAL_MISMATCH' })
  })

  it('refuses a signature by another key, naming both', async () => {
    const { client, approve, askToRewind } = await guardedWeb()
    const approval = await askToRewind()
    await expect(approve(approval, OTHER.privateKey)).rejects.toMatchObject({
      code: 'APPROVAL_WRONG_KEY', details: { key: fingerprintOf(OTHER.publicKey), expected: fingerprintOf(MINE.publicKey) },
    })
    await expect(client.restoreSnapshot('web', 'web-ckpt-1', { approval })).rejects.toMatchObject({ code: 'APPROVAL_REQUIRED' })
  })

  it('refuses a signature of anything else, handed in or changed where it is kept', async () => {
    const { client, services, approve, askToRewind } = await guardedWeb()
    const id = await askToRewind()
    const request = await client.approvals.get(id)
    await expect(client.approvals.approve({ ...request, target: 'web-ckpt-2' }, { privateKey: MINE.privateKey })).rejects.toMatchObject({ code: 'APPROVAL_TAMPERED' })
    await approve(id)
    const record = (await services.approvalRecords.read(id))!
    services.aheadMs = 11 * 60_000
    const longer = { ...record, decision: { ...record.decision, until: new Date(Date.now() + services.aheadMs + 60_000).toISOString() } as typeof record.decision }
    await services.approvalRecords.write(id, longer)
    await expect(client.restoreSnapshot('web', 'web-ckpt-1', { approval: id })).rejects.toMatchObject({ code: 'APPROVAL_TAMPERED' })
  })

  it('takes the signature of the documented text, made by any program', async () => {
    const { client, socketPath, askToRewind } = await guardedWeb()
    const id = await askToRewind()
    const until = new Date(Date.now() + 60_000).toISOString()
    const text = `kosa8 approval 1\nid: ${id}\nsandbox: web\ncreated: 2026-01-02T03:04:05.000Z\naction: rewind\ntarget: web-ckpt-1\nuntil: ${until}\n`
    const signature = sign(null, Buffer.from(text), createPrivateKey(MINE.privateKey)).toString('base64')
    await callMethod(socketPath, 'approve', { params: { id }, body: { until, signature, key: fingerprintOf(MINE.publicKey) } })
    await client.restoreSnapshot('web', 'web-ckpt-1', { approval: id })
  })

  it('does not take an approval after its time, and can be asked again', async () => {
    const { client, services, approve, askToRewind } = await guardedWeb()
    const approval = await askToRewind()
    await approve(approval)
    services.aheadMs = 10 * 60_000 + 1
    await expect(client.restoreSnapshot('web', 'web-ckpt-1', { approval })).rejects.toMatchObject({ code: 'APPROVAL_EXPIRED' })
    services.aheadMs = -2 * 3600_000
    await expect(approve(approval)).rejects.toMatchObject({ code: 'USAGE', message: expect.stringMatching(/an hour at most/) as string })
    expect(await client.approvals.get(approval)).toMatchObject({ state: 'approved' })
    const request = await client.approvals.get(approval)
    for (const forMs of [0, -1, Number.NaN, 3600_001]) {
      await expect(client.approvals.approve(request, { privateKey: '', forMs })).rejects.toMatchObject({ code: 'USAGE', message: expect.stringMatching(/an hour at most/) as string })
    }
  })

  it('does not do what a person has refused, and an approval can be taken back', async () => {
    const { client, approve, askToRewind } = await guardedWeb()
    const approval = await askToRewind()
    await approve(approval)
    await client.approvals.deny(approval)
    await expect(client.restoreSnapshot('web', 'web-ckpt-1', { approval })).rejects.toMatchObject({ code: 'APPROVAL_DENIED' })
    await expect(approve(approval)).rejects.toMatchObject({ code: 'APPROVAL_DENIED' })
    expect(await client.approvals.list()).toEqual([])
  })

  it('counts an approval as used once its act has begun, and says when a daemon ended in the middle of it', async () => {
    const { client, services, approve, askToRewind } = await guardedWeb()
    const approval = await askToRewind()
    await approve(approval)
    const act = { sandbox: 'web', action: 'rewind', target: 'web-ckpt-1' } as const
    await services.approvals.guard(act, approval, async () => {
      expect((await services.approvalRecords.read(approval))?.use?.state).toBe('begun')
      await expect(client.restoreSnapshot('web', 'web-ckpt-1', { approval })).rejects.toMatchObject({ code: 'APPROVAL_USED', message: expect.stringMatching(/was used at \S+$/) as string })
    })
    const record = (await services.approvalRecords.read(approval))!
    await services.approvalRecords.write(approval, { ...record, use: { startedAt: record.use!.startedAt, state: 'begun' } })
    await expect(client.restoreSnapshot('web', 'web-ckpt-1', { approval })).rejects.toMatchObject({
      code: 'APPROVAL_USED', message: expect.stringMatching(/the daemon ended before it was done/) as string, hint: expect.stringMatching(/look at the sandbox with `kosa8 ls`/) as string,
    })
  })

  it('is brought back with the same approval when its restore fails, and the error ends with that call', async () => {
    const { client, services, approve, askToRewind } = await guardedWeb()
    const approval = await askToRewind()
    await approve(approval)
    services.sandboxes.restoreFailure = new Kosa8Error('MACHINE_START_FAILED', 'QEMU did not start')
    await expect(client.rewind('web', { to: 'web-ckpt-1', approval })).rejects.toMatchObject({
      code: 'MACHINE_START_FAILED', message: expect.stringMatching(/restoreSnapshot\("web", "web-ckpt-1", \{ approval: "[0-9a-f]{16}" \}\)$/) as string,
    })
    services.sandboxes.restoreFailure = null
    await client.restoreSnapshot('web', 'web-ckpt-1', { approval })
    await expect(client.restoreSnapshot('web', 'web-ckpt-1', { approval })).rejects.toMatchObject({ code: 'APPROVAL_USED' })
  })

  it('takes an eleventh checkpoint once the removal of the oldest was approved, and none before', async () => {
    const { client, approve, ask } = await guardedWeb()
    for (let n = 3; n <= 10; n += 1) await client.checkpoint('web')
    await expect(client.checkpoint('web')).rejects.toMatchObject({ message: expect.stringMatching(/^web has 10 checkpoints, and the oldest has to go before another is taken: /) as string })
    const approval = await ask(() => client.checkpoint('web'))
    await approve(approval)
    await client.sandbox('web').deleteCheckpoint('web-ckpt-1', { approval })
    await client.checkpoint('web')
    expect((await client.listCheckpoints('web')).map(({ id }) => id).slice(-1)).toEqual(['web-ckpt-11'])
  })

  it('never gets a private key', async () => {
    const { client } = await guardedWeb()
    await expect(client.createSandbox({ name: 'db', approvals: MINE.privateKey })).rejects.toMatchObject({ code: 'USAGE', message: expect.stringMatching(/this is a private key/) as string })
    await expect(client.createSandbox({ name: 'db', approvals: 'ssh-ed25519 AAAA' })).rejects.toMatchObject({ code: 'USAGE' })
  })
})

describe('the book of approvals', () => {
  it('lets one sandbox have twenty requests waiting', async () => {
    const { services } = await guardedWeb()
    const ask = (n: number) => services.approvals.guard({ sandbox: 'web', action: 'egress', target: `host-${n}.example:443` }, null, async () => undefined)
    for (let n = 1; n <= 20; n += 1) await expect(ask(n)).rejects.toMatchObject({ code: 'APPROVAL_REQUIRED' })
    await expect(ask(21)).rejects.toMatchObject({ code: 'LIMIT_EXCEEDED' })
    await expect(ask(20)).rejects.toMatchObject({ code: 'APPROVAL_REQUIRED' })
  })

  it('asks for nothing that would be more than a line of the signed text', async () => {
    const { services } = await guardedWeb()
    const ask = services.approvals.guard({ sandbox: 'web', action: 'egress', target: 'deny\nuntil: 2099-01-01' }, null, async () => undefined)
    await expect(ask).rejects.toMatchObject({ code: 'USAGE' })
    expect(services.approvalRecords.all.size).toBe(0)
  })

  it('forgets requests after a day, and those of a sandbox or a checkpoint that is gone', async () => {
    const { client, services, askToRewind, ask } = await guardedWeb()
    await askToRewind()
    await ask(() => client.sandbox('web').deleteCheckpoint('web-ckpt-2'))
    await services.sandboxes.deleteSnapshot('web', 'web-ckpt-2')
    expect(await client.approvals.list()).toMatchObject([{ action: 'rewind', lost: [] }])
    await services.sandboxes.deleteSnapshot('web', 'web-ckpt-1')
    expect(await client.approvals.list()).toEqual([])
    services.aheadMs = 24 * 3600_000 + 5000
    expect(await client.approvals.list()).toEqual([])
    expect(services.approvalRecords.all.size).toBe(0)
  })
})
