/** A guest that breaks the rules, played by the test: the session ends, and nothing else happens. */
import { once } from 'node:events'
import type { Duplex } from 'node:stream'
import { afterEach, expect, test } from 'vitest'
import { openGuestSession, type AgentSession } from '../../src/guest/agent-session.js'
import { encodeFrame, encodeHello, FRAME_TYPE, NONCE_BYTES } from '../../src/guest/frames.js'
import type { GuestCommand, GuestGateway, GuestProcess } from '../../src/guest/session.js'
import { createDeferred } from '../../src/util/deferred.js'
import { encodeAck, text, u32 } from '../helpers/scripted-agent.js'
import { duplexPair } from './duplex-pair.js'

const HELLO_BYTES = encodeHello(Buffer.alloc(NONCE_BYTES)).length
const frame = (type: number, stream: number, payload: Uint8Array, flags = 0): Buffer =>
  encodeFrame({ type, flags, stream, payload })
const started = frame(FRAME_TYPE.started, 1, u32(42))

let session: AgentSession | undefined

afterEach(() => session?.end())

/** Answers HELLO as an agent would; gives the test the guest's end. */
async function openWithGuest(gateway: GuestGateway | null = null): Promise<Duplex> {
  const [host, guest] = duplexPair()
  let seen = Buffer.alloc(0)
  const opening = openGuestSession(host, { requestTimeoutMs: 5_000, gateway })
  await new Promise<void>((resolve) => {
    const onData = (chunk: Buffer): void => {
      seen = Buffer.concat([seen, chunk])
      if (seen.length < HELLO_BYTES) return
      guest.off('data', onData)
      resolve()
    }
    guest.on('data', onData)
  })
  const nonce = seen.subarray(HELLO_BYTES - 4 - NONCE_BYTES, HELLO_BYTES - 4)
  guest.write(encodeAck(nonce))
  guest.resume()
  session = await opening
  return guest
}

test('a guest that loses the first greeting answers the next one, and no late answer is taken for it', async () => {
  const [host, guest] = duplexPair()
  let seen = Buffer.alloc(0)
  const nonceOf = (greeting: number): Buffer => seen.subarray(greeting * HELLO_BYTES - 4 - NONCE_BYTES, greeting * HELLO_BYTES - 4)
  guest.on('data', (chunk: Buffer) => {
    const before = seen.length
    seen = Buffer.concat([seen, chunk])
    if (before < 2 * HELLO_BYTES && seen.length >= 2 * HELLO_BYTES) guest.write(Buffer.concat([encodeAck(nonceOf(1)), encodeAck(nonceOf(2))]))
  })
  session = await openGuestSession(host, { helloAgainMs: 50, requestTimeoutMs: 5_000 })
  expect(session.facts).toBeDefined()
  expect(seen.length).toBe(2 * HELLO_BYTES)
})

async function start(guest: Duplex, command: GuestCommand): Promise<GuestProcess | undefined> {
  const starting = session?.exec(command)
  guest.write(started)
  return starting
}

test.each([
  ['bytes that are no frame', Buffer.from('HTTP/1.1 400 Bad Request\r\n\r\n')],
  ['a frame for a command that is not there', frame(FRAME_TYPE.exit, 99, u32(0, 0))],
  ['a start twice', Buffer.concat([started, started])],
  ['output before the start', frame(FRAME_TYPE.data, 1, Buffer.from('x'), 1)],
  ['output of a third stream', Buffer.concat([started, frame(FRAME_TYPE.data, 1, Buffer.from('x'), 3)])],
  ['empty output', Buffer.concat([started, frame(FRAME_TYPE.data, 1, Buffer.alloc(0), 1)])],
  ['more output than it has credit for',
    Buffer.concat([started, ...Array.from({ length: 9 }, () => frame(FRAME_TYPE.data, 1, Buffer.alloc(32768), 2))])],
  ['output after its end', Buffer.concat([started, frame(FRAME_TYPE.eof, 1, u32(), 1), frame(FRAME_TYPE.data, 1, Buffer.from('x'), 1)])],
  ['an exit twice', Buffer.concat([started, frame(FRAME_TYPE.exit, 1, u32(0, 0)), frame(FRAME_TYPE.exit, 1, u32(0, 0))])],
  ['an impossible exit status', Buffer.concat([started, frame(FRAME_TYPE.exit, 1, u32(70000, 0))])],
  ['credit for input that was not sent', Buffer.concat([started, frame(FRAME_TYPE.credit, 1, u32(1))])],
  ['an answer to nothing', Buffer.concat([started, frame(FRAME_TYPE.done, 1, u32(0))])],
  ['a command closed that was not to be', Buffer.concat([started, frame(FRAME_TYPE.closed, 1, u32(1, 0))])],
  ['a message that is too short', frame(FRAME_TYPE.startFailed, 1, u32(2))],
  ['a text of impossible length', frame(FRAME_TYPE.startFailed, 1, u32(2, 0xffffffff))],
  ['an unknown type', Buffer.concat([started, frame(0xee, 1, u32())])],
])('a guest that sends %s ends the session with GUEST_PROTOCOL (invariant 10)', async (_what, bytes) => {
  const guest = await openWithGuest()
  const running = session?.exec({ argv: ['x'], stdin: true }).then(async (process) => {
    await process.exited
    await process.signal(1)
  })
  guest.write(bytes)
  await expect(session?.ended).resolves.toContain('broke the protocol')
  await expect(running).rejects.toMatchObject({ code: expect.stringMatching(/GUEST_PROTOCOL|GUEST_UNREACHABLE/) as string })
  await expect(session?.exec({ argv: ['true'] })).rejects.toMatchObject({ code: 'GUEST_UNREACHABLE' })
})

const fromGuest = (index: number): number => 0x80000000 + index
const connected = (index: number, windowBytes = 65_536): Buffer => frame(FRAME_TYPE.connected, fromGuest(index), u32(windowBytes))
const OVER_CREDIT = Array.from({ length: 3 }, () => frame(FRAME_TYPE.data, fromGuest(1), Buffer.alloc(32_768)))

test.each([
  ['data on a connection that is not there', frame(FRAME_TYPE.data, fromGuest(1), Buffer.from('x'))],
  ['a connection twice', Buffer.concat([connected(1), connected(1)])],
  ['a connection with an impossible window', connected(1, 0xffffffff)],
  ['a connection without a window', frame(FRAME_TYPE.connected, fromGuest(1), Buffer.alloc(0))],
  ['a connection in the host\'s own numbers', frame(FRAME_TYPE.connected, 7, u32(65_536))],
  ['more connections than it may have', Buffer.concat(Array.from({ length: 257 }, (_, index) => connected(index + 1)))],
  ['more data than it has credit for', Buffer.concat([connected(1), ...OVER_CREDIT])],
  ['data after its end', Buffer.concat([connected(1), frame(FRAME_TYPE.eof, fromGuest(1), Buffer.alloc(0)), frame(FRAME_TYPE.data, fromGuest(1), Buffer.from('x'))])],
  ['credit nobody used', Buffer.concat([connected(1), frame(FRAME_TYPE.credit, fromGuest(1), u32(1))])],
  ['an exit of a connection', Buffer.concat([connected(1), frame(FRAME_TYPE.exit, fromGuest(1), u32(0, 0))])],
  ['an answer nobody waits for', frame(FRAME_TYPE.listening, fromGuest(1), u32(0))],
])('a guest that sends %s ends the session, gateway or not', async (_what, bytes) => {
  for (const gateway of [null, { port: 880, onConnection: () => undefined }]) {
    const guest = await openWithGuest(gateway)
    guest.write(bytes)
    await expect(session?.ended).resolves.toContain('broke the protocol')
  }
})

test('connections nobody wants are refused at once, and what their program sends meanwhile is dropped', async () => {
  const guest = await openWithGuest()
  const answered = once(guest, 'data')
  guest.write(connected(1))
  const [answer] = await answered as [Buffer]
  expect([answer.readUInt8(4), answer.readUInt32LE(8)]).toEqual([FRAME_TYPE.close, fromGuest(1)])
  guest.write(Buffer.concat([frame(FRAME_TYPE.data, fromGuest(1), Buffer.from('x')), frame(FRAME_TYPE.closed, fromGuest(1), u32(1))]))
  guest.write(connected(1))
  expect((await once(guest, 'data') as [Buffer])[0].readUInt8(4)).toBe(FRAME_TYPE.close)
})

test('a connection of a lost session fails whoever reads it', async () => {
  const taken = createDeferred<Duplex>()
  const guest = await openWithGuest({ port: 880, onConnection: (connection) => taken.resolve(connection) })
  guest.write(connected(1))
  const broken = once(await taken.promise, 'error')
  guest.destroy()
  expect((await broken)[0]).toMatchObject({ code: 'GUEST_UNREACHABLE' })
})

test('a list of more than 64 leftover processes ends the session', async () => {
  const guest = await openWithGuest()
  const process = await start(guest, { argv: ['x'] })
  const closing = process?.close()
  guest.write(frame(FRAME_TYPE.closed, 1, u32(1, 65, ...Array.from({ length: 65 }, () => [1, 2, 0x6161]).flat())))
  await expect(closing).rejects.toMatchObject({ code: 'GUEST_PROTOCOL' })
})

test('names of leftover processes arrive without control characters', async () => {
  const guest = await openWithGuest()
  const process = await start(guest, { argv: ['x'] })
  const closing = process?.close()
  guest.write(frame(FRAME_TYPE.closed, 1, Buffer.concat([u32(1, 1, 77), text('a\x1b[31mb')])))
  await expect(closing).resolves.toEqual([{ pid: 77, name: 'a[31mb' }])
})

test('a guest that never answers a request ends the session as unreachable', async () => {
  const [host, guest] = duplexPair()
  guest.resume()
  await expect(openGuestSession(host, { helloTimeoutMs: 50 })).rejects.toMatchObject({ code: 'GUEST_UNREACHABLE' })
  expect(host.destroyed).toBe(true)
})

test('a channel that closes fails what waits, once, and unread streams do not end the host', async () => {
  const guest = await openWithGuest()
  const process = await start(guest, { argv: ['x'], stdin: true })
  process?.stdin?.write('never read')
  guest.destroy()
  await expect(process?.exited).rejects.toMatchObject({ code: 'GUEST_UNREACHABLE' })
  await expect(process?.close()).rejects.toMatchObject({ code: 'GUEST_UNREACHABLE' })
  await expect(session?.ended).resolves.toContain('closed')
})
