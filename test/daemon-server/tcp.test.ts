/** The TCP listener: who is let in, what is refused there, and clients that use it. */
import { once } from 'node:events'
import { chmod, readFile, stat, writeFile } from 'node:fs/promises'
import { request, type IncomingMessage, type RequestOptions } from 'node:http'
import { request as tlsRequest } from 'node:https'
import path from 'node:path'
import type { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { describe, expect, it, onTestFinished } from 'vitest'
import { openTcpListener } from '../../src/daemon/server/tcp-listener.js'
import { METHODS } from '../../src/protocol/methods.js'
import { openStream } from '../../src/protocol/client.js'
import { STREAM_PATHS } from '../../src/protocol/streams.js'
import { Kosa8Client } from '../../src/sdk/client.js'
import { findPackageRoot } from '../../src/util/package-root.js'
import { spawnProgram } from '../../src/util/spawn.js'
import { typeCommand } from '../cli/run-cli.js'
import { serveHome, temporaryFolder } from './serve.js'

const CERT = path.resolve(import.meta.dirname, '../fixtures/tls/cert.pem')
const KEY = path.resolve(import.meta.dirname, '../fixtures/tls/key.pem')

async function listen(wanted: Partial<Parameters<typeof openTcpListener>[1]> = {}) {
  const served = await serveHome()
  const tokenFile = path.join(served.home, 'token')
  const listener = await openTcpListener(served.services, { host: '127.0.0.1', port: 0, tls: null, ...wanted }, tokenFile)
  onTestFinished(() => listener.close())
  const token = (await readFile(tokenFile, 'utf8')).trim()
  const client = new Kosa8Client({ home: await temporaryFolder(), url: listener.url, token })
  return { ...served, listener, tokenFile, token, client }
}

/** Sends a request with headers as they are. */
async function send(url: string, target: string, headers: Record<string, string>, options: RequestOptions & { ca?: Buffer } = {}) {
  const outgoing = (url.startsWith('https:') ? tlsRequest : request)(`${url}${target}`, { ...options, headers, agent: false })
  outgoing.end()
  const [answer] = await once(outgoing, 'response') as [IncomingMessage]
  let body = ''
  for await (const chunk of answer) body += String(chunk)
  return { status: answer.statusCode, headers: answer.headers, body }
}

describe('the TCP listener', () => {
  it('answers nothing to whoever has no token or a wrong one, whatever they ask', async () => {
    const { listener, token, services } = await listen()
    await services.sandboxes.create({ name: 'db', image: 'base', memoryMib: 512, cpus: 1, egress: 'deny' } as never, new AbortController().signal)
    const paths = [...Object.values(METHODS).map((method) => [method.verb, method.path]), ...Object.values(STREAM_PATHS).map((each) => ['GET', each]), ['GET', '/'], ['PUT', STREAM_PATHS.sandboxFile]]
    const wrong = ['', 'Bearer x', `Bearer ${token}x`, `Basic ${token}`, token]
    const answers = new Set<string>()
    for (const [index, [method, target]] of paths.entries()) {
      const authorization = wrong[index % wrong.length] as string
      const { status, body } = await send(listener.url, (target as string).replace(':name', 'db'), { authorization }, { method })
      expect([401, 429], `${method} ${target}`).toContain(status)
      answers.add((JSON.parse(body) as { error: { code: string } }).error.code)
    }
    expect([...answers]).toEqual(['UNAUTHORISED'])
    expect(services.sandboxes.all.size).toBe(1)
  })

  it('runs no command for an upgrade without the token', async () => {
    const { listener, services, client, token } = await listen()
    await client.createSandbox({ name: 'db' })
    const upgrade = { connection: 'Upgrade', upgrade: 'kosa8-exec' }
    expect(await send(listener.url, '/v1/sandboxes/db/exec', { ...upgrade, authorization: `Bearer ${token.slice(1)}` })).toMatchObject({ status: 401 })
    const far = new Kosa8Client({ home: await temporaryFolder(), url: listener.url, token: 'wrong' })
    await expect(far.sandbox('db').exec(['print', 'x'])).rejects.toMatchObject({ code: 'UNAUTHORISED' })
    expect(services.sandboxes.processes).toEqual([])
  })

  it('says what is wrong thirty times a minute, and still lets in whoever has the token', async () => {
    const { listener, client } = await listen()
    const statuses = []
    for (let n = 0; n < 32; n += 1) statuses.push((await send(listener.url, '/v1/status', {})).status)
    expect(statuses.slice(28)).toEqual([401, 401, 429, 429])
    expect(await client.listSandboxes()).toEqual([])
  })

  it('answers no web page: neither one of another origin nor one that bent its name to this address', async () => {
    const { listener, token } = await listen()
    const authorization = `Bearer ${token}`
    for (const headers of [{ origin: 'http://localhost:3000' }, { 'sec-fetch-site': 'none' }, { host: 'evil.example' }, { host: '127.0.0.1.evil.example:80' }]) {
      expect(await send(listener.url, '/v1/status', { authorization, ...headers }), JSON.stringify(headers)).toMatchObject({ status: 403 })
    }
    for (const host of ['localhost:1', '127.0.0.1', '[::1]:80']) {
      expect(await send(listener.url, '/v1/status', { authorization, host }), host).toMatchObject({ status: 200 })
    }
  })

  it('listens where other hosts can reach it with TLS only', async () => {
    await expect(listen({ host: '0.0.0.0' })).rejects.toMatchObject({ code: 'CONFIG_INVALID', message: expect.stringMatching(/can be reached from other hosts/) as string })
    await expect(listen({ host: '::' })).rejects.toMatchObject({ code: 'CONFIG_INVALID' })
    await expect(listen({ tls: { certFile: CERT, keyFile: CERT } })).rejects.toMatchObject({ code: 'CONFIG_INVALID', message: expect.stringMatching(/certificate and key cannot be used/) as string })
    const { listener, token } = await listen({ host: '0.0.0.0', tls: { certFile: CERT, keyFile: KEY } })
    const url = listener.url.replace('0.0.0.0', 'localhost')
    expect(url).toMatch(/^https:/)
    await expect(new Kosa8Client({ home: await temporaryFolder(), url, token }).listSandboxes()).rejects.toMatchObject({
      code: 'DAEMON_UNREACHABLE', message: expect.stringMatching(/self-signed certificate/) as string, hint: expect.stringMatching(/NODE_EXTRA_CA_CERTS/) as string,
    })
    const ca = await readFile(CERT)
    expect(await send(url, '/v1/status', { authorization: `Bearer ${token}` }, { ca })).toMatchObject({ status: 200 })
    expect(await send(url, '/v1/status', {}, { ca })).toMatchObject({ status: 401, headers: { 'www-authenticate': 'Bearer' } })
  })

  it('keeps its token for its owner alone, and takes no other', async () => {
    const { services, tokenFile, token } = await listen()
    expect((await stat(tokenFile)).mode & 0o777).toBe(0o600)
    expect(Buffer.from(token, 'base64url')).toHaveLength(32)
    const open = () => openTcpListener(services, { host: 'localhost', port: 0, tls: null }, tokenFile)
    await (await open()).close()
    expect((await readFile(tokenFile, 'utf8')).trim()).toBe(token)
    await chmod(tokenFile, 0o644)
    await expect(open()).rejects.toMatchObject({ code: 'CONFIG_INVALID', hint: `remove it, and a new one is made: rm ${tokenFile}` })
    await chmod(tokenFile, 0o600)
    await writeFile(tokenFile, 'short')
    await expect(open()).rejects.toMatchObject({ code: 'CONFIG_INVALID' })
  })

  it('refuses what needs its own host, also from a client that does not ask first', async () => {
    const { listener, token } = await listen()
    const address = { url: listener.url, token }
    for (const name of ['stay', 'stop', 'listen'] as const) {
      const json = name === 'listen' ? { host: '127.0.0.1', port: 0, tls: null } : {}
      await expect(openStream(address, { verb: 'POST', path: METHODS[name].path, json }), name).rejects.toMatchObject({ code: 'LOCAL_ONLY' })
    }
    const json = { name: 'db', image: 'base', memoryMib: 512, cpus: 1, egress: 'deny', repository: '/srv/code' }
    await expect(openStream(address, { verb: 'POST', path: METHODS.createSandbox.path, json })).rejects.toMatchObject({ code: 'LOCAL_ONLY' })
    await expect(openStream(address, { verb: 'POST', path: STREAM_PATHS.reserve, json: {} })).rejects.toMatchObject({ code: 'USAGE' })
  })
})

describe('a client with a URL', () => {
  it('uses sandboxes, files and commands over TCP, and keeps its list of checkpoints apart from this host\'s', async () => {
    const { client, home } = await listen()
    await client.createSandbox({ name: 'db' })
    await client.sandbox('db').writeFile('note', 'text')
    expect((await client.sandbox('db').exec(['print', 'out', 'err', '7'])).exitCode).toBe(7)
    await client.checkpoint('db', { label: 'far' })
    expect(await client.listCheckpoints('db')).toMatchObject([{ label: 'far' }])
    expect(await new Kosa8Client({ home, startsDaemon: false }).listCheckpoints('db')).toEqual([])
  })

  it('says what it cannot do from afar before it does any of it', async () => {
    const { client, settings, listener, token } = await listen()
    await expect(client.createSandbox({ name: 'db', repository: '/srv/code' })).rejects.toMatchObject({ code: 'LOCAL_ONLY' })
    await expect(client.keepDaemon()).rejects.toMatchObject({ code: 'LOCAL_ONLY' })
    const far = { ...settings, remote: { url: listener.url, token } }
    expect(await typeCommand(['fork', '--approaches', 'a'], { settings: far })).toMatchObject({ status: 2, stderr: expect.stringMatching(/^kosa8: this is not done over TCP: a run reads the repository/) as string })
    expect(await typeCommand(['image', 'build'], { settings: far })).toMatchObject({ status: 2 })
    expect(await typeCommand(['ls'], { settings: far })).toMatchObject({ status: 0, stdout: 'no sandboxes yet\n' })
  })

  it('starts no daemon where none answers, and says where it looked', async () => {
    const { client, listener, settings, token } = await listen()
    await client.connect()
    await listener.close()
    await expect(client.listSandboxes()).rejects.toMatchObject({ code: 'DAEMON_UNREACHABLE', message: expect.stringMatching(new RegExp(`^no daemon answers at ${listener.url}: connect ECONNREFUSED`)) as string })
    const far = { ...settings, remote: { url: listener.url, token } }
    expect(await typeCommand(['daemon', 'status'], { settings: far })).toMatchObject({ status: 3, stdout: `no daemon answers at ${listener.url}\n` })
  })

  it('says what to write where one side speaks TLS and the other does not, and where a certificate has another name', async () => {
    const tls = { certFile: CERT, keyFile: KEY }
    const clear = await listen()
    const secure = await listen({ tls })
    const hintFor = async (url: string, env: NodeJS.ProcessEnv = {}): Promise<string | undefined> => {
      const child = spawnProgram(process.execPath, [path.join(findPackageRoot(), 'dist/src/cli/main.js'), 'ls'], {
        env: { PATH: process.env['PATH'], KOSA8_HOME: clear.home, KOSA8_URL: url, KOSA8_TOKEN: clear.token, ...env }, stdio: ['ignore', 'ignore', 'pipe'],
      })
      return /^hint: (.*)$/m.exec(await text(child.stderr as Readable))?.[1]
    }
    const port = new URL(secure.listener.url).port
    expect(await hintFor(clear.listener.url.replace('http:', 'https:'))).toMatch(/without --tls-cert is reached with http:\/\//)
    expect(await hintFor(`http://localhost:${port}`)).toBe(`a daemon that listens with --tls-cert is reached with https://localhost:${port}`)
    expect(await hintFor(`https://localhost:${port}`)).toMatch(/trust it: NODE_EXTRA_CA_CERTS=FILE$/)
    const elsewhere = await listen({ host: '127.0.0.2', tls })
    expect(await hintFor(elsewhere.listener.url, { NODE_EXTRA_CA_CERTS: CERT })).toBe('name the host as its certificate does, or have one made for 127.0.0.2')
  })

  it('does not use a daemon of another build', async () => {
    const { client, services } = await listen()
    services.daemon.build = '0123456789abcdef'
    await expect(client.listSandboxes()).rejects.toMatchObject({ code: 'DAEMON_VERSION', hint: 'use the same build of kosa8 on both hosts' })
  })

  it('sends no token in clear text to another host', async () => {
    const home = await temporaryFolder()
    for (const url of ['http://build.example:80', 'http://127.0.0.1.evil.example', 'ftp://localhost', 'https://u:p@h', 'https://h/path', 'h:1']) {
      expect(() => new Kosa8Client({ home, url, token: 'x' }), url).toThrow(expect.objectContaining({ code: 'CONFIG_INVALID' }))
    }
    expect(() => new Kosa8Client({ home, url: 'https://build.example' })).toThrow(expect.objectContaining({ code: 'CONFIG_INVALID' }))
  })
})
