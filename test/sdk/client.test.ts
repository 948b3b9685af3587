import { createReadStream } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { startServer } from '../../src/daemon/server/server.js'
import type { RunEvent } from '../../src/model/run.js'
import { Kosa8Client } from '../../src/sdk/client.js'
import { DaemonConnection } from '../../src/sdk/connection.js'
import { startDaemon } from '../../src/sdk/daemon-process.js'
import { RUN_ID } from '../daemon-server/memory-services.js'
import { serveHome, settingsOf, temporaryFolder } from '../daemon-server/serve.js'

const PHASE = (message: string) => ({ type: 'run-phase', phase: 'running', message } as const)

describe('a client', () => {
  it('makes, lists and deletes sandboxes with the guide\'s names', async () => {
    const { home, services } = await serveHome()
    const client = new Kosa8Client({ home })
    expect(await client.createSandbox({ name: 'db', egress: 'deny', memMb: 512 })).toMatchObject({ name: 'db', memoryMib: 512, image: 'base', cpus: 1 })
    expect(await client.sandbox('db').describe()).toMatchObject({ state: 'running' })
    await client.deleteSandbox('db')
    expect(services.sandboxes.all.size).toBe(0)
    await expect(client.sandbox('db').describe()).rejects.toMatchObject({ code: 'SANDBOX_UNKNOWN', hint: 'see `kosa8 ls`' })
  })

  it('writes a file of a stream and reads it back', async () => {
    const { home } = await serveHome()
    const client = new Kosa8Client({ home })
    await client.createSandbox({ name: 'db' })
    await client.sandbox('db').writeFile('notes & more.txt', 'text', 0o600)
    const chunks: Buffer[] = []
    for await (const chunk of await client.sandbox('db').readFile('notes & more.txt')) chunks.push(chunk as Buffer)
    expect(Buffer.concat(chunks).toString()).toBe('text')
  })

  it('fails with what the stream it sends fails with, not with the connection that breaks off then', async () => {
    const { home } = await serveHome()
    const client = new Kosa8Client({ home })
    await client.createSandbox({ name: 'db' })
    await expect(client.sandbox('db').writeFile('a', createReadStream('/nonexistent'))).rejects.toMatchObject({ code: 'ENOENT' })
    // Its beginning cannot be read, and it opens all the same.
    await expect(client.sandbox('db').writeFile('a', createReadStream('/proc/self/mem'))).rejects.toMatchObject({ code: 'EIO' })
  })

  it('that may start none says that the daemon is not running', async () => {
    const client = new Kosa8Client({ home: await temporaryFolder(), startsDaemon: false })
    await expect(client.status()).rejects.toMatchObject({ code: 'DAEMON_UNREACHABLE', message: 'the daemon is not running', hint: 'start it with `kosa8 daemon start`' })
    expect(await client.findDaemon()).toBeNull()
  })

  it('leaves a daemon of another version alone while something runs in it', async () => {
    const { home, services } = await serveHome()
    services.daemon.version = '0.0.1'
    services.daemon.running = { sandboxes: 2, runs: 0 }
    await expect(new Kosa8Client({ home }).listSandboxes()).rejects.toMatchObject({
      code: 'DAEMON_VERSION', details: { daemon: '0.0.1' }, hint: 'run `kosa8 daemon stop`: sandboxes go on running, and are found again by the next daemon',
    })
  })

  it('leaves a daemon of another build of its version alone while something runs in it, and tells both builds', async () => {
    const { home, services } = await serveHome()
    services.daemon.build = '0123456789abcdef'
    services.daemon.running = { sandboxes: 1, runs: 1 }
    await expect(new Kosa8Client({ home }).listSandboxes()).rejects.toMatchObject({
      code: 'DAEMON_VERSION', message: expect.stringMatching(/is of version \S+ \(build 01234567\), this is \S+ \(build (?!01234567)\w+\)/) as string,
      hint: expect.stringMatching(/^when its runs are done, run `kosa8 daemon stop`/) as string,
    })
  })

  it('calls again when the daemon was replaced between two calls', async () => {
    const { home, server, socketPath, services } = await serveHome()
    const client = new Kosa8Client({ home, startsDaemon: false })
    await client.createSandbox({ name: 'db' })
    await server.close()
    const second = await startServer(socketPath, services)
    await client.createSandbox({ name: 'web' })
    expect((await client.listSandboxes()).map(({ name }) => name)).toEqual(['db', 'web'])
    await second.close()
  })

  it('shows the end of the log when the daemon cannot be started', async () => {
    const home = await temporaryFolder()
    const settings = { ...settingsOf(home), imagesDirectory: 'not absolute' }
    const connection = new DaemonConnection({ settings, startsDaemon: true })
    await expect(connection.ensureDaemon()).rejects.toMatchObject({
      code: 'DAEMON_UNREACHABLE', hint: `its log is ${path.join(home, 'daemon.log')}`,
      message: expect.stringMatching(/^the daemon could not be started: KOSA8_IMAGES_DIR must be/) as string,
    })
  })

  it('says what to install when the daemon finds no redis-server', async () => {
    const home = await temporaryFolder()
    await expect(startDaemon({ settings: settingsOf(home), env: { KOSA8_HOME: home, PATH: home }, answers: async () => false })).rejects.toMatchObject({
      code: 'DAEMON_UNREACHABLE', message: expect.stringContaining('redis-server is not installed') as string,
      hint: expect.stringMatching(/REDIS_URL.*setup\.mjs; its log is/) as string,
    })
  })
})

describe('following a run', () => {
  it('goes on after the last event seen when the daemon is replaced', async () => {
    const { home, server, socketPath, services } = await serveHome()
    const client = new Kosa8Client({ home, startsDaemon: false })
    services.runs.push(PHASE('one'))
    services.runs.push(PHASE('two'))
    const events = client.runs.follow(RUN_ID)
    const seen: RunEvent[] = [(await events.next()).value as RunEvent, (await events.next()).value as RunEvent]
    await server.close()
    const second = await startServer(socketPath, services)
    services.runs.push(PHASE('three'))
    services.runs.push({ type: 'run-end', phase: 'completed' })
    for await (const event of events) seen.push(event)
    expect(seen.map(({ seq }) => seq)).toEqual([0, 1, 2, 3])
    expect(services.runs.eventRequests).toEqual([0, 2])
    await second.close()
  })

  it('ends when it is told to, and fails when the daemon stays away', async () => {
    const { home, server, services } = await serveHome()
    const client = new Kosa8Client({ home, startsDaemon: false })
    services.runs.push(PHASE('one'))
    const leaving = new AbortController()
    const events = client.runs.follow(RUN_ID, { signal: leaving.signal })
    await events.next()
    leaving.abort()
    expect((await events.next()).done).toBe(true)
    const others = client.runs.follow(RUN_ID)
    await others.next()
    await server.close()
    await expect(others.next()).rejects.toMatchObject({ code: 'DAEMON_UNREACHABLE' })
  })

  it('of a run nobody knows fails at once', async () => {
    const { home } = await serveHome()
    const events = new Kosa8Client({ home }).runs.follow('r20260102-030405-ffffffff')
    await expect(events.next()).rejects.toMatchObject({ code: 'RUN_UNKNOWN' })
  })
})
