/** Approvals with a real machine: the daemon killed between use and act, and what clones inherit. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Kosa8Client, type Kosa8Error } from '../../src/sdk/index.js'
import { ApprovalStore } from '../../src/store/approval-store.js'
import { createKeyPair } from '../../src/util/ed25519.js'
import { Kosa8, killHard } from '../helpers/kosa8.js'

const { privateKey, publicKey } = createKeyPair(null)
let kosa8: Kosa8
let client: Kosa8Client

beforeAll(async () => {
  kosa8 = await Kosa8.open()
  client = new Kosa8Client({ home: kosa8.paths.home })
  await client.createSandbox({ name: 'web', memMb: 256, approvals: publicKey })
  await client.checkpoint('web', { label: 'before' })
})

afterAll(() => kosa8.close())

async function approved(call: () => Promise<unknown>): Promise<string> {
  const error = await call().catch((thrown: unknown) => thrown as Kosa8Error)
  expect(error).toMatchObject({ code: 'APPROVAL_REQUIRED' })
  const id = (error as Kosa8Error).details['approval'] as string
  await client.approvals.approve(await client.approvals.get(id), { privateKey })
  return id
}

describe('a sandbox with approvals', () => {
  it('is not rewound a second time when the daemon is killed in the middle of the first, and can be asked anew', async () => {
    const approval = await approved(() => client.rewind('web'))
    const rewind = kosa8.start(['rewind', 'web', '-y', '--approval', approval])
    const store = new ApprovalStore(kosa8.paths)
    await kosa8.until(kosa8.paths.approvals, async () => ((await store.read(approval))?.use?.state === 'begun' ? true : null))
    await killHard(await kosa8.daemon())
    expect((await rewind.ended).status).not.toBe(0)
    expect(await kosa8.type(['rewind', 'web', '-y', '--approval', approval])).toMatchObject({
      status: 2, stderr: expect.stringMatching(/was used at .*, and the daemon ended before it was done: how far it came is not known\nhint: look at the sandbox/) as string,
    })
    const again = await approved(() => client.rewind('web'))
    await client.rewind('web', { approval: again })
    expect((await client.sandbox('web').exec(['echo', 'back'])).stdout).toBe('back\n')
  })

  it('hands its key on to its clones, and goes with everything once that is approved', async () => {
    const [clone] = await client.sandbox('web').fork({ names: ['twin'] })
    expect(clone?.error).toBeNull()
    expect((await client.sandbox('twin').describe()).approvals).toBe((await client.sandbox('web').describe()).approvals)
    for (const name of ['twin', 'web']) await client.deleteSandbox(name, { approval: await approved(() => client.deleteSandbox(name)) })
    expect(await kosa8.listLeftovers()).toMatchObject({ machines: [], layers: [], checkpoints: [], sandboxes: [], reservations: [] })
  })
})
