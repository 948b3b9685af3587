/** Connections of the guest's programs, carried by the real agent over a socket pair. */
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { pipeline } from 'node:stream/promises'
import type { Duplex } from 'node:stream'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { openGuestSession, type AgentSession } from '../../src/guest/agent-session.js'
import { runInGuest } from '../../src/guest/run-in-guest.js'
import type { GuestGateway } from '../../src/guest/session.js'
import { readMemory, startAgent, type AgentUnderTest } from './agent-under-test.js'

const MIB = 1024 * 1024
let agent: AgentUnderTest
let session: AgentSession
let port: number
const sockets: Socket[] = []

beforeEach(async () => {
  agent = await startAgent()
  session = await openGuestSession(agent.openChannel())
  port = await freePort()
})

afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy()
  session.end()
  await agent.end()
})

async function freePort(): Promise<number> {
  const server = createServer()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port: free } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return free
}

const gatewayOf = (onConnection: (connection: Duplex) => void): GuestGateway => ({ port, onConnection })

/** Sends everything back. */
const echo = gatewayOf.bind(null, (connection) => { connection.pipe(connection) })

/** Connects as a program of the guest would. */
async function connectInGuest(): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
  sockets.push(socket)
  await once(socket, 'connect')
  return socket
}

async function readAll(socket: Duplex): Promise<Buffer> {
  const chunks: Buffer[] = []
  for await (const chunk of socket) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks)
}

test('a connection is carried both ways, each direction ended on its own', async () => {
  await session.setGateway(echo())
  const socket = await connectInGuest()
  socket.end('said before the end')
  expect((await readAll(socket)).toString()).toBe('said before the end')
})

test('commands are told of the port while it is open, unless they say otherwise', async () => {
  const read = async (env: Record<string, string> = {}): Promise<string> =>
    (await runInGuest(session, { argv: ['sh', '-c', 'echo "$HTTP_PROXY $https_proxy $NO_PROXY $NODE_USE_ENV_PROXY"'], env })).stdout.toString().trim()
  expect(await read()).toBe('')
  await session.setGateway(echo())
  const url = `http://127.0.0.1:${port}`
  expect(await read()).toBe(`${url} ${url} localhost,127.0.0.1,::1 1`)
  expect(await read({ HTTP_PROXY: 'own' })).toBe(`own ${url} localhost,127.0.0.1,::1 1`)
  await session.setGateway(null)
  expect(await read()).toBe('')
})

test('closing the way out resets what is open and lets nobody in', async () => {
  await session.setGateway(echo())
  const socket = await connectInGuest()
  socket.write('x')
  await once(socket, 'data')
  const broken = once(socket, 'error')
  await session.setGateway(null)
  expect((await broken)[0]).toMatchObject({ code: 'ECONNRESET' })
  const late = connect(port, '127.0.0.1')
  expect((await once(late, 'error'))[0]).toMatchObject({ code: 'ECONNREFUSED' })
})

test('a new session finds the port open, and connections of the former one are reset', async () => {
  await session.setGateway(echo())
  const socket = await connectInGuest()
  socket.write('x')
  await once(socket, 'data')
  const broken = once(socket, 'error')
  session.end()
  session = await openGuestSession(agent.openChannel(), { gateway: echo() })
  expect((await broken)[0]).toMatchObject({ code: 'ECONNRESET' })
  expect(session.facts.isListening).toBe(true)
  const next = await connectInGuest()
  next.end('again')
  expect((await readAll(next)).toString()).toBe('again')
})

test('a host without a gateway resets whoever connects', async () => {
  await session.setGateway(echo())
  session.end()
  session = await openGuestSession(agent.openChannel())
  const socket = connect(port, '127.0.0.1', () => socket.write('x'))
  expect((await once(socket, 'error'))[0]).toMatchObject({ code: 'ECONNRESET' })
})

test('a port that is taken is an error that says so, and the session goes on', async () => {
  const server = createServer().listen(port, '127.0.0.1')
  await once(server, 'listening')
  await expect(session.setGateway(echo())).rejects.toMatchObject({ code: 'GUEST_COMMAND_FAILED', message: expect.stringContaining('in use') as string })
  expect(session.hasGateway).toBe(false)
  server.close()
})

test('what the host breaks off is a reset for the program, and what the program breaks off an error for the host', async () => {
  const taken: Duplex[] = []
  await session.setGateway(gatewayOf((connection) => { taken.push(connection); connection.resume() }))
  const first = await connectInGuest()
  first.write('x')
  const reset = once(first, 'error')
  await expect.poll(() => taken.length).toBe(1)
  taken[0]?.destroy()
  expect((await reset)[0]).toMatchObject({ code: 'ECONNRESET' })
  const second = await connectInGuest()
  second.write('x')
  await expect.poll(() => taken.length).toBe(2)
  const closed = once(taken[1] as Duplex, 'error')
  second.resetAndDestroy()
  expect((await closed)[0]).toMatchObject({ message: expect.stringContaining('broken off') as string })
})

test('128 MiB go through one connection and back unchanged, in bounded memory on both sides', async () => {
  await session.setGateway(echo())
  const socket = await connectInGuest()
  const sent = createHash('sha256')
  const received = createHash('sha256')
  const block = randomBytes(MIB)
  let peakBuffers = 0
  const sending = pipeline(async function* () {
    for (let i = 0; i < 128; i++) {
      sent.update(block)
      peakBuffers = Math.max(peakBuffers, process.memoryUsage().arrayBuffers)
      yield block
    }
  }, socket)
  for await (const chunk of socket) received.update(chunk as Buffer)
  await sending
  expect(received.digest('hex')).toBe(sent.digest('hex'))
  expect((await readMemory(agent.pid)).peakBytes).toBeLessThan(8 * MIB)
  expect(peakBuffers).toBeLessThan(64 * MIB)
})

test('a program that does not read, and a host that does not, hold back their own connection only', async () => {
  const taken: Duplex[] = []
  await session.setGateway(gatewayOf((connection) => { taken.push(connection) }))
  const [unread, unheard] = [await connectInGuest(), await connectInGuest()]
  unheard.write(Buffer.alloc(8 * MIB))
  await expect.poll(() => taken.length).toBe(2)
  for (const connection of taken) connection.write(Buffer.alloc(8 * MIB))
  unread.pause()
  await session.setGateway(echo())
  const socket = await connectInGuest()
  socket.end('meanwhile')
  expect((await readAll(socket)).toString()).toBe('meanwhile')
  expect((await runInGuest(session, { argv: ['echo', 'on'] })).stdout.toString()).toBe('on\n')
  expect((await readMemory(agent.pid)).peakBytes).toBeLessThan(8 * MIB)
})

test('400 connections at once are all served, and commands run meanwhile', async () => {
  await session.setGateway(echo())
  const answers = Array.from({ length: 400 }, async (_, index) => {
    const socket = await connectInGuest()
    socket.end(`number ${index} `.repeat(2_000))
    return (await readAll(socket)).toString() === `number ${index} `.repeat(2_000)
  })
  for (let i = 0; i < 10; i++) expect((await runInGuest(session, { argv: ['echo', 'on'] })).stdout.toString()).toBe('on\n')
  expect(new Set(await Promise.all(answers))).toEqual(new Set([true]))
})
