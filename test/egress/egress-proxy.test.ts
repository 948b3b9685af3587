/** The proxy over real sockets: what a guest sends arrives by a socket here, what is reached are servers of this test. */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer as createHttpServer, type IncomingMessage, type RequestListener } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { EgressProxy, type EgressProxyParts } from '../../src/egress/egress-proxy.js'
import { chooseProxy } from '../../src/egress/host-proxy.js'
import { NO_PROXIES, parseEgress } from '../../src/model/egress.js'

const cleanup: (() => void)[] = []
let seen: { url: string; headers: IncomingMessage['headers']; body: string }[]
let web: number

afterEach(() => { for (const end of cleanup.splice(0).reverse()) end() })

async function listen(server: Server): Promise<number> {
  const sockets = new Set<Socket>()
  server.on('connection', (socket: Socket) => {
    sockets.add(socket)
    socket.on('error', () => undefined)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  cleanup.push(() => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  return (server.address() as AddressInfo).port
}

const record: RequestListener = (request, response) => {
  let body = ''
  request.on('data', (chunk) => { body += String(chunk) })
  request.on('end', () => {
    seen.push({ url: request.url ?? '', headers: request.headers, body })
    response.writeHead(200, { 'x-of': 'web', 'keep-alive': 'timeout=9', 'set-cookie': ['a=1', 'b=2'] })
    response.end(`hello ${request.url}`)
  })
}

beforeEach(async () => {
  seen = []
  web = await listen(createHttpServer(record))
})

/** A proxy, and connections to it as a guest makes them. */
async function startProxy(rule: string, parts: Partial<EgressProxyParts> = {}) {
  const proxy = new EgressProxy({
    rule: parseEgress(rule), proxies: NO_PROXIES, advise: (entry) => `Allow ${entry}.`,
    resolve: async () => ['127.0.0.1'], ...parts,
  })
  const port = await listen(createServer({ allowHalfOpen: true }, (socket) => proxy.onConnection(socket)))
  const open = async (): Promise<Socket> => {
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
    cleanup.push(() => socket.destroy())
    await once(socket, 'connect')
    return socket
  }
  /** Sends text and returns everything that comes until the end. */
  const say = async (text: string): Promise<string> => {
    const socket = await open()
    socket.write(text)
    return readAll(socket)
  }
  return { proxy, open, say }
}

async function readAll(socket: Socket): Promise<string> {
  let text = ''
  socket.on('data', (chunk) => { text += String(chunk) })
  socket.on('error', () => undefined)
  await Promise.race([once(socket, 'end'), once(socket, 'close')])
  return text
}

async function readUntil(socket: Socket, end: string): Promise<string> {
  let text = ''
  while (!text.includes(end)) text += String((await once(socket, 'data'))[0])
  return text
}

describe('plain HTTP', () => {
  it('goes to the host of the URL, whatever the Host header says, without headers meant for the proxy', async () => {
    const { say } = await startProxy(`127.0.0.1:${web}`)
    const answer = await say(`POST http://127.0.0.1:${web}/a?b=c HTTP/1.1\r\nHost: other.example\r\nProxy-Authorization: Basic eA==\r\nX-Hop: 1\r\n`
      + 'Connection: close, X-Hop\r\nUpgrade: websocket\r\nX-Kept: yes\r\nContent-Length: 4\r\n\r\nbody')
    expect(answer).toMatch(/^HTTP\/1\.1 200 OK\r\n/)
    expect(answer).toContain('hello /a?b=c')
    expect(answer.toLowerCase()).toContain('set-cookie: a=1\r\nset-cookie: b=2\r\n')
    expect(answer.toLowerCase()).not.toContain('timeout=9')
    expect(seen).toEqual([{
      url: '/a?b=c', body: 'body',
      headers: { host: `127.0.0.1:${web}`, connection: 'close', 'x-kept': 'yes', 'content-length': '4' },
    }])
  })

  it('keeps a body in chunks in chunks, so that it cannot pass for another request', async () => {
    const { say } = await startProxy(`127.0.0.1:${web}`)
    const smuggled = 'GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n'
    await say(`GET http://127.0.0.1:${web}/one HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n`
      + `${smuggled.length.toString(16)}\r\n${smuggled}\r\n0\r\n\r\n`)
    expect(seen.map(({ url, body }) => [url, body])).toEqual([['/one', smuggled]])
  })

  it('serves several requests of one connection, each by its own URL', async () => {
    const { open } = await startProxy(`127.0.0.1:${web}`)
    const socket = await open()
    socket.write(`GET http://127.0.0.1:${web}/one HTTP/1.1\r\nHost: x\r\n\r\n`)
    await readUntil(socket, 'hello /one')
    socket.write('GET http://other.example/ HTTP/1.1\r\nHost: x\r\n\r\n')
    expect(await readAll(socket)).toContain('403 Forbidden')
  })

  it.each([
    ['a path without a host', 'GET / HTTP/1.1\r\nHost: a.example\r\n\r\n'],
    ['another scheme', 'GET ftp://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n'],
    ['https without CONNECT', 'GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n'],
    ['two lengths', 'POST http://a.example/ HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'],
    ['no HTTP', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'],
    ['a header without end', `GET http://a.example/ HTTP/1.1\r\nX: ${'x'.repeat(100_000)}`],
  ])('%s is a bad request', async (_what, text) => {
    const { say } = await startProxy('a.example')
    expect(await say(text)).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n/)
  })

  it('a server that breaks off in mid-answer breaks the answer off', async () => {
    const broken = await listen(createServer((socket) => {
      socket.once('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf', () => socket.destroy()))
    }))
    const { say } = await startProxy(`127.0.0.1:${broken}`)
    const answer = await say(`GET http://127.0.0.1:${broken}/ HTTP/1.1\r\nHost: x\r\n\r\n`)
    expect(answer).not.toContain('0\r\n\r\n')
    expect(answer.length).toBeLessThan(300)
  })

  it('a host none of whose addresses answers is a bad gateway with a reason', async () => {
    const { say } = await startProxy('a.example:1,127.0.0.1:1,[::1]:1', { resolve: async () => ['127.0.0.1', '::1'] })
    expect(await say('GET http://a.example:1/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')).toMatch(/502 .*a\.example:1 cannot be reached: .*ECONNREFUSED/s)
    expect(await say('CONNECT a.example:1 HTTP/1.1\r\nHost: x\r\n\r\n')).toMatch(/502 .*a\.example:1 cannot be reached: .*ECONNREFUSED/s)
  })

  it('a server that is not there is a bad gateway', async () => {
    const gone = createServer()
    const port = await listen(gone)
    gone.close()
    const { say, proxy } = await startProxy(`127.0.0.1:${port}`)
    expect(await say(`GET http://127.0.0.1:${port}/ HTTP/1.1\r\nHost: x\r\n\r\n`)).toMatch(/^HTTP\/1\.1 502 .*cannot be reached/s)
    expect(proxy.blockedAttempts()).toEqual([])
  })
})

describe('a tunnel', () => {
  it('carries both directions, each ended on its own', async () => {
    const upper = await listen(createServer({ allowHalfOpen: true }, (socket) => {
      let text = ''
      socket.on('data', (chunk) => { text += String(chunk) })
      socket.on('end', () => socket.end(text.toUpperCase()))
    }))
    const { open } = await startProxy(`127.0.0.1:${upper}`)
    const socket = await open()
    socket.write(`CONNECT 127.0.0.1:${upper} HTTP/1.1\r\nHost: x\r\n\r\nearly `)
    expect(await readUntil(socket, '\r\n\r\n')).toMatch(/^HTTP\/1\.1 200 /)
    socket.end('late')
    expect(await readAll(socket)).toBe('EARLY LATE')
  })

  it.each(['nonsense', 'a.example', 'a.example:0', 'a.example:99999', ':443', '[::1:443', 'a/b:443'])('to %j is a bad request', async (authority) => {
    const { say } = await startProxy('*')
    expect(await say(`CONNECT ${authority} HTTP/1.1\r\nHost: x\r\n\r\n`)).toMatch(/^HTTP\/1\.1 400 /)
  })

  it('that is no longer allowed ends when the rule changes, and others stay', async () => {
    const quiet = await listen(createServer((socket) => { socket.pipe(socket) }))
    const { proxy, open } = await startProxy(`127.0.0.1:${quiet},one.example:${quiet}`)
    const tunnels = await Promise.all(['one.example', '127.0.0.1'].map(async (host) => {
      const socket = await open()
      socket.write(`CONNECT ${host}:${quiet} HTTP/1.1\r\nHost: x\r\n\r\n`)
      await readUntil(socket, '\r\n\r\n')
      return socket
    }))
    const ended = once(tunnels[0] as Socket, 'end')
    tunnels[0]?.resume()
    proxy.rule = parseEgress(`127.0.0.1:${quiet}`)
    await ended
    tunnels[1]?.write('still here')
    expect(await readUntil(tunnels[1] as Socket, 'here')).toBe('still here')
  })
})

describe('what is not allowed', () => {
  it('is refused with what was blocked and how to allow it, and noted once per target with a count', async () => {
    const first: string[] = []
    const { proxy, say } = await startProxy('a.example', { onBlocked: ({ target }) => first.push(target) })
    for (let i = 0; i < 3; i++) {
      const answer = await say('CONNECT Other.Example.:443 HTTP/1.1\r\nHost: a.example\r\n\r\n')
      expect(answer).toMatch(/^HTTP\/1\.1 403 Forbidden\r\n/)
      expect(answer).toContain('kosa8: blocked: other.example:443: it is not on the list. Allow other.example.\n')
    }
    await say('GET http://a.example:8080/ HTTP/1.1\r\nHost: a.example\r\n\r\n')
    expect(proxy.blockedAttempts()).toMatchObject([{ target: 'a.example:8080', count: 1 }, { target: 'other.example:443', count: 3 }])
    expect(first).toEqual(['other.example:443', 'a.example:8080'])
  })

  it.each([
    ['a refusal', 'CONNECT other.example:443 HTTP/1.1\r\nHost: x\r\n\r\n', 403],
    ['a request that is none', 'nonsense\r\n\r\n', 400],
  ])('is told to the end: %s is not followed by a reset, whatever else was sent', async (_what, text, status) => {
    const { open } = await startProxy('a.example')
    const socket = await open()
    const errors: Error[] = []
    socket.on('error', (error) => errors.push(error))
    socket.write(text)
    expect(await readAll(socket)).toContain(`HTTP/1.1 ${status} `)
    // Were the other side gone, the first write would be answered with a reset and the second would fail.
    for (const more of ['more', 'and more']) await new Promise((resolve) => { socket.write(more, resolve) })
    socket.end()
    await once(socket, 'close')
    expect(errors).toEqual([])
  })

  it('is remembered for 100 targets and told of 100 times, however many are tried', async () => {
    const first: string[] = []
    const { proxy, open } = await startProxy('a.example', { onBlocked: ({ target }) => first.push(target) })
    for (let i = 0; i < 150; i++) {
      const socket = await open()
      socket.write(`CONNECT h${i}.example:443 HTTP/1.1\r\nHost: x\r\n\r\n`)
      await readAll(socket)
    }
    expect(proxy.blockedAttempts()).toHaveLength(100)
    expect(proxy.blockedAttempts()[0]?.target).toBe('h149.example:443')
    expect(first).toHaveLength(100)
  })

  it.each([
    ['a name that leads to the loopback', 'evil.example', ['127.0.0.1']],
    ['a name that leads to the loopback by IPv6', 'evil.example', ['::1']],
    ['a name that leads to an IPv4 address in IPv6 clothes', 'evil.example', ['::ffff:127.0.0.1']],
    ['a name that leads to translated IPv4', 'evil.example', ['64:ff9b::7f00:1']],
    ['a name that leads to cloud metadata', 'evil.example', ['169.254.169.254']],
    ['a name that leads to metadata by IPv6', 'evil.example', ['fd00:ec2::254']],
    ['a name that leads to nothing in particular', 'evil.example', ['0.0.0.0']],
    ['a name that leads to a link-local address', 'evil.example', ['fe80::1']],
    ['a name that leads nowhere', 'evil.example', []],
    ['localhost', 'localhost', ['127.0.0.1', '::1']],
    ['the loopback by number', '127.0.0.1', []],
    ['the loopback in another spelling', '0x7f000001', []],
    ['the loopback by IPv6', '[::1]', []],
    ['metadata by number', '169.254.169.254', []],
  ])('by `*` does not contain %s', async (_what, host, addresses) => {
    const { proxy, say } = await startProxy('*', { resolve: async () => addresses })
    expect(await say(`CONNECT ${host}:443 HTTP/1.1\r\nHost: x\r\n\r\n`)).toMatch(/^HTTP\/1\.1 403 .*listed by its number/s)
    expect(proxy.blockedAttempts()).toHaveLength(1)
  })

  it('can be reached by name once the address it leads to is listed', async () => {
    const { say } = await startProxy(`evil.example:${web},127.0.0.1:${web}`)
    expect(await say(`GET http://evil.example:${web}/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`)).toContain('hello /x')
    expect(seen[0]?.headers.host).toBe(`evil.example:${web}`)
  })

  it('stays so when a name answers differently the second time: it is looked up once', async () => {
    const answers = [['127.0.0.1'], ['192.0.2.1']]
    let asked = 0
    const { say } = await startProxy(`evil.example:${web},127.0.0.1:${web}`, { resolve: async () => answers[asked++] ?? [] })
    expect(await say(`GET http://evil.example:${web}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`)).toContain('200 OK')
    expect(asked).toBe(1)
  })

  it('is not even looked up', async () => {
    let asked = 0
    const { say } = await startProxy('a.example', { resolve: async () => { asked += 1; return [] } })
    await say('CONNECT secret-words.evil.example:443 HTTP/1.1\r\nHost: x\r\n\r\n')
    expect(asked).toBe(0)
  })
})

describe('behind a proxy of the host', () => {
  /** A proxy that notes what it is asked, and serves both kinds. */
  async function startOuter() {
    const asked: string[] = []
    const outer = createHttpServer((request, response) => {
      asked.push(`${request.method} ${request.url} ${request.headers['proxy-authorization'] ?? '-'} ${request.headers.host}`)
      response.end('by the outer proxy')
    })
    outer.on('connect', (request: IncomingMessage, socket: Socket) => {
      asked.push(`CONNECT ${request.url} ${request.headers['proxy-authorization'] ?? '-'}`)
      if (request.url?.startsWith('refused') === true) socket.end('HTTP/1.1 407 No\r\n\r\n')
      else socket.end('HTTP/1.1 200 OK\r\n\r\nby the outer tunnel')
    })
    const url = `http://user:pass%21@127.0.0.1:${await listen(outer)}`
    return { asked, proxies: { http: url, https: url, except: ['.direct.example'] } }
  }
  const SECRET = `Basic ${Buffer.from('user:pass!').toString('base64')}`
  const unknown = async (): Promise<string[]> => Promise.reject(Object.assign(new Error('no'), { code: 'ENOTFOUND' }))

  it('both kinds go through it, with its password, also for names only it knows', async () => {
    const { asked, proxies } = await startOuter()
    const { say } = await startProxy('a.example', { proxies, resolve: unknown })
    expect(await say('GET http://a.example/x HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n')).toContain('by the outer proxy')
    const { open } = await startProxy('a.example', { proxies, resolve: unknown })
    const socket = await open()
    socket.write('CONNECT a.example:443 HTTP/1.1\r\nHost: x\r\n\r\n')
    expect(await readUntil(socket, 'tunnel')).toContain('by the outer tunnel')
    expect(asked).toEqual([`GET http://a.example:80/x ${SECRET} a.example`, `CONNECT a.example:443 ${SECRET}`])
  })

  it('that is reached over TLS has to show a certificate for its own name, not for the target\'s', async () => {
    const names: string[] = []
    const tls = path.resolve(import.meta.dirname, '../fixtures/tls')
    const outer = createHttpsServer({
      cert: readFileSync(path.join(tls, 'cert.pem')), key: readFileSync(path.join(tls, 'key.pem')),
      SNICallback: (name, use) => {
        names.push(name)
        use(null)
      },
    })
    const url = `https://localhost:${await listen(outer)}`
    const { say } = await startProxy('a.example', { proxies: { http: url, https: url, except: [] }, resolve: unknown })
    const refused = /HTTP\/1\.1 502 .*cannot be reached: the host's proxy cannot be used: self-signed certificate/s
    expect(await say('GET http://a.example/ HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n')).toMatch(refused)
    expect(await say('CONNECT a.example:443 HTTP/1.1\r\nHost: x\r\n\r\n')).toMatch(refused)
    expect(names).toEqual(['localhost', 'localhost'])
  })

  it('NO_PROXY takes networks, for addresses by number', () => {
    const isDirect = (host: string, ...except: string[]): boolean =>
      chooseProxy({ http: 'http://proxy.example', https: null, except }, { host, port: 80, isTunnel: false }) === null
    expect(isDirect('10.1.2.3', 'x.example', '10.0.0.0/8')).toBe(true)
    expect(isDirect('fd00::7', 'fd00::/8')).toBe(true)
    for (const entry of ['10.0.0.0/16', 'fd00::/8', '10.0.0.0/99', '/8', '10.0.0.0/']) expect(isDirect('10.1.2.3', entry), entry).toBe(false)
    expect(isDirect('ten.example', '0.0.0.0/0')).toBe(false)
  })

  it('its refusal is told, without its password', async () => {
    const { proxies } = await startOuter()
    const { say } = await startProxy('refused.example', { proxies, resolve: unknown })
    const answer = await say('CONNECT refused.example:443 HTTP/1.1\r\nHost: x\r\n\r\n')
    expect(answer).toMatch(/^HTTP\/1\.1 502 .*the host's proxy cannot be used: it refuses with status 407/s)
    expect(answer).not.toContain('pass')
  })

  it('names that lead to the host itself are refused all the same, and NO_PROXY goes directly', async () => {
    const { asked, proxies } = await startOuter()
    const { say } = await startProxy(`*,*:${web},127.0.0.1:${web}`, { proxies })
    expect(await say('CONNECT evil.example:443 HTTP/1.1\r\nHost: x\r\n\r\n')).toMatch(/^HTTP\/1\.1 403 /)
    expect(await say(`GET http://a.direct.example:${web}/y HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`)).toContain('hello /y')
    expect(asked).toEqual([])
  })
})
