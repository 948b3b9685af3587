import { readFile, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { Kosa8Client } from '../../src/sdk/client.js'
import { createKeyPair, normalisePublicKey } from '../../src/util/ed25519.js'
import { serveHome } from '../daemon-server/serve.js'
import { typeCommand, type CliOptions } from './run-cli.js'

async function serveGuarded(passphrase: string | null = null) {
  const { settings, home, services } = await serveHome()
  const { privateKey, publicKey } = createKeyPair(passphrase)
  await writeFile(path.join(home, 'approval.pem'), privateKey)
  await writeFile(path.join(home, 'approval.pem.pub'), publicKey)
  const type = (argv: string[], options?: Partial<CliOptions>) => typeCommand(argv, { settings, cwd: home, ...options })
  expect((await type(['create', 'web', '--approvals', 'approval.pem.pub'])).stdout).toMatch(/^web is running \(base, 1024 MiB, egress deny, approvals by SHA256:\S+\)\n$/)
  const ago = (minutes: number) => { services.sandboxes.now = () => new Date(Date.now() - minutes * 60_000 - 500).toISOString() }
  ago(2)
  await type(['checkpoint', 'web', '--label', 'before migration'])
  ago(0)
  await type(['checkpoint', 'web'])
  const refused = await type(['rewind', 'web', '--to', 'before migration', '-y'])
  const id = /request ([0-9a-f]{16}) waits/.exec(refused.stderr)?.[1] as string
  return { type, home, id, refused, client: new Kosa8Client({ home }) }
}

describe('kosa8 approve', () => {
  it('lists what waits in words a person can judge', async () => {
    const { type, id, refused } = await serveGuarded()
    expect(refused.status).toBe(2)
    expect((await type(['approve'])).stdout).toBe([
      `${id}  asked just now, waiting`, '  rewind web to web-ckpt-1 ("before migration")',
      '  everything since 2m ago is lost, and with it web-ckpt-2', '',
    ].join('\n'))
    expect(JSON.parse((await type(['approve', '--json'])).stdout)).toMatchObject([{ id, state: 'waiting', lost: ['web-ckpt-2'] }])
  })

  it('asks, signs, and the command repeated with the id does it', async () => {
    const { type, id } = await serveGuarded()
    const { stdout, status } = await type(['approve', id], { stdin: 'y\n' })
    expect(status).toBe(0)
    expect(stdout).toContain('Everything since 2m ago is lost, and with it web-ckpt-2.\nWho knows the request may then do this once, within 10 minutes.\nApprove? [y/N] ')
    expect(stdout).toMatch(new RegExp(`\\napproved until \\S+; it is used with: kosa8 rewind web --to web-ckpt-1 --approval ${id}\\n$`))
    expect((await type(['rewind', 'web', '--to', 'web-ckpt-1', '-y', '--approval', id])).stdout).toMatch(/^web is back at web-ckpt-1/)
    expect(await type(['rewind', 'web', '--to', 'web-ckpt-1', '-y', '--approval', id])).toMatchObject({ status: 2 })
    expect((await type(['approve'])).stdout).toBe('nothing waits for an approval\n')
  })

  it('removes a sandbox and a checkpoint with theirs', async () => {
    const { type } = await serveGuarded()
    for (const argv of [['checkpoint', 'rm', 'web', 'web-ckpt-2'], ['rm', 'web']]) {
      const id = /request ([0-9a-f]{16}) waits/.exec((await type(argv)).stderr)?.[1] as string
      expect(await type(['approve', id, '-y', '--for', '30s'])).toMatchObject({ status: 0 })
      expect(await type([...argv, '--approval', id]), argv.join(' ')).toMatchObject({ status: 0 })
    }
  })

  it('is for one sandbox: of several each asks for its own, and an id with several names is refused before any goes', async () => {
    const { type } = await serveGuarded()
    await type(['create', 'db', '--approvals', 'approval.pem.pub'])
    await type(['create', 'free'])
    const { status, stdout, stderr } = await type(['rm', 'web', 'db', 'free'])
    expect({ status, stdout }).toEqual({ status: 2, stdout: 'removed free\n' })
    const ids = [...stderr.matchAll(/^kosa8: removing (?:web|db) failed: .*request ([0-9a-f]{16}) waits.*\nhint: .*kosa8 rm (?:web|db) --approval/gm)].map(([, id]) => id as string)
    expect(ids).toHaveLength(2)
    await type(['approve', ids[0] as string, '-y'])
    expect(await type(['rm', 'web', 'db', '--approval', ids[0] as string])).toEqual({
      status: 2, stdout: '',
      stderr: 'kosa8: --approval is for one sandbox, and several are named\nhint: an approval is for one act: remove that sandbox by itself\n',
    })
    expect((await type(['rm', 'web', '--approval', ids[0] as string])).stdout).toBe('removed web\n')
  })

  it('approves nothing without a yes, and refuses with --deny', async () => {
    const { type, id } = await serveGuarded()
    expect(await type(['approve', id])).toMatchObject({ status: 1, stderr: 'nothing was approved\n' })
    expect((await type(['approve', id, '--deny'])).stdout).toBe('refused: rewind web to web-ckpt-1 ("before migration")\n')
    expect((await type(['rewind', 'web', '--to', 'web-ckpt-1', '-y', '--approval', id])).stderr).toMatch(/^kosa8: a person has refused request/)
  })

  it('opens an encrypted key with the passphrase typed after the answer, and with no other', async () => {
    const { type, id } = await serveGuarded('open sesame')
    expect(await type(['approve', id], { stdin: 'y\nwrong\n' })).toMatchObject({ status: 2, stderr: expect.stringMatching(/the passphrase does not open the private key/) as string })
    expect(await type(['approve', id], { stdin: 'y\nopen sez\u007fsame\n' })).toMatchObject({ status: 0 })
  })

  it('says where it looked for a key that is not there, and bounds the time', async () => {
    const { type, id, home } = await serveGuarded()
    expect((await type(['approve', id, '-y', '--key', 'no.pem'])).stderr).toContain(`the private key ${path.join(home, 'no.pem')} cannot be read`)
    expect(await type(['approve', id, '-y', '--for', '2h'])).toMatchObject({ status: 2, stderr: expect.stringMatching(/an hour at most/) as string })
    expect((await type(['approve', '0000000000000000'])).stderr).toMatch(/^kosa8: there is no request for an approval 0000000000000000/)
  })
})

describe('kosa8 approve keygen', () => {
  it('writes the private key for its owner alone, the public one beside it, and never over a file', async () => {
    const { type, home } = await serveGuarded()
    const made = await type(['approve', 'keygen', '--out', 'mine.pem'])
    expect(made).toMatchObject({ status: 0, stderr: expect.stringMatching(/has no passphrase/) as string })
    expect((await stat(path.join(home, 'mine.pem'))).mode & 0o777).toBe(0o600)
    const publicKey = await readFile(path.join(home, 'mine.pem.pub'), 'utf8')
    expect(normalisePublicKey(publicKey)).toBe(publicKey)
    expect(await type(['approve', 'keygen', '--out', 'mine.pem'])).toMatchObject({ status: 2, stderr: expect.stringMatching(/is there already/) as string })
  })

  it('encrypts it with a passphrase that is typed twice the same, unseen', async () => {
    const { type, home } = await serveGuarded()
    const terminals = { stdin: true }
    expect(await type(['approve', 'keygen', '--out', 'a.pem'], { terminals, stdin: 'one\rtwo\r' })).toMatchObject({ status: 2, stderr: expect.stringMatching(/the two passphrases differ/) as string })
    expect(await type(['approve', 'keygen', '--out', 'b.pem'], { terminals, stdin: 'one\u0003' })).toMatchObject({ status: 130 })
    expect(await type(['approve', 'keygen', '--out', 'c.pem'], { terminals, stdin: 'one\rone\r' })).toMatchObject({ status: 0 })
    expect(await readFile(path.join(home, 'c.pem'), 'utf8')).toContain('BEGIN ENCRYPTED PRIVATE KEY')
  })
})
