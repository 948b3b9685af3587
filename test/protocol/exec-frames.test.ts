import { createServer, connect, type Socket } from 'node:net'
import { once } from 'node:events'
import path from 'node:path'
import { onTestFinished, describe, expect, it } from 'vitest'
import { CREDIT_BYTES, ExecConnection, FRAME, FRAME_BYTES_MAX, type ExecHandlers } from '../../src/protocol/exec-frames.js'
import type { Kosa8Error } from '../../src/errors/kosa8-error.js'
import { createDeferred } from '../../src/util/deferred.js'
import { temporaryFolder } from '../daemon-server/serve.js'

async function socketPair(): Promise<[Socket, Socket]> {
  const file = path.join(await temporaryFolder(), 's')
  const server = createServer({ allowHalfOpen: true })
  server.listen(file)
  await once(server, 'listening')
  const near = connect(file)
  const [far] = await once(server, 'connection') as [Socket]
  onTestFinished(() => { near.destroy(); far.destroy(); server.close() })
  return [near, far]
}

function quiet(overrides: Partial<ExecHandlers> = {}): ExecHandlers {
  return { onMessage: () => undefined, onClose: () => undefined, ...overrides }
}

function frame(type: number, payload: Buffer, length = payload.length): Buffer {
  const header = Buffer.alloc(5)
  header.writeUInt8(type, 0)
  header.writeUInt32BE(length, 1)
  return Buffer.concat([header, payload])
}

async function readAll(stream: AsyncIterable<Buffer>): Promise<Buffer> {
  const chunks: Buffer[] = []
  for await (const chunk of stream) chunks.push(chunk)
  return Buffer.concat(chunks)
}

describe('an exec connection', () => {
  it('carries ten million bytes of any value unchanged', async () => {
    const [near, far] = await socketPair()
    const writer = new ExecConnection(near, Buffer.alloc(0), quiet()).openWritable('stdin')
    const reader = new ExecConnection(far, Buffer.alloc(0), quiet()).openReadable('stdin')
    const sent = Buffer.from(Array.from({ length: 10_000_000 }, (_, index) => (index * 31 + (index >> 8)) % 256))
    writer.end(sent)
    expect((await readAll(reader)).equals(sent)).toBe(true)
  })

  it('sends no more than its credit while the other end does not read, and a message still gets through', async () => {
    const [near, far] = await socketPair()
    const told = createDeferred<unknown>()
    const sender = new ExecConnection(near, Buffer.alloc(0), quiet())
    const stdout = sender.openWritable('stdout')
    const receiver = new ExecConnection(far, Buffer.alloc(0), quiet({ onMessage: (_name, body) => told.resolve(body) }))
    const reader = receiver.openReadable('stdout')
    stdout.end(Buffer.alloc(4 * CREDIT_BYTES))
    sender.sendMessage('exit', { code: 0, signal: null })
    expect(await told.promise).toEqual({ code: 0, signal: null })
    expect(near.bytesWritten).toBeLessThan(CREDIT_BYTES * 1.01)
    expect(await readAll(reader)).toHaveLength(4 * CREDIT_BYTES)
  })

  it('lets one stream go on while the other is not read', async () => {
    const [near, far] = await socketPair()
    const sender = new ExecConnection(near, Buffer.alloc(0), quiet())
    const receiver = new ExecConnection(far, Buffer.alloc(0), quiet())
    receiver.openReadable('stdout')
    const stderr = receiver.openReadable('stderr')
    sender.openWritable('stdout').write(Buffer.alloc(2 * CREDIT_BYTES))
    sender.openWritable('stderr').end(Buffer.alloc(2 * CREDIT_BYTES, 1))
    expect(await readAll(stderr)).toHaveLength(2 * CREDIT_BYTES)
  })

  it('understands frames cut at any byte', async () => {
    const [near, far] = await socketPair()
    const messages: unknown[] = []
    const closed = createDeferred<Kosa8Error | null>()
    new ExecConnection(far, Buffer.alloc(0), quiet({ onMessage: (name, body) => messages.push([name, body]), onClose: closed.resolve }))
    near.setNoDelay(true)
    for (const byte of Buffer.concat([frame(FRAME.signal, Buffer.from('{"signal":2}')), frame(FRAME.resize, Buffer.from('{"rows":1}'))])) {
      await new Promise<void>((resolve) => { near.write(Buffer.of(byte), () => resolve()) })
    }
    near.end()
    expect(await closed.promise).toBeNull()
    expect(messages).toEqual([['signal', { signal: 2 }], ['resize', { rows: 1 }]])
  })

  it.each([
    ['a frame beyond the limit', frame(FRAME.start, Buffer.alloc(0), FRAME_BYTES_MAX + 1)],
    ['a frame of unknown type', frame(99, Buffer.alloc(0))],
    ['a message that is no JSON', frame(FRAME.start, Buffer.from('{'))],
    ['data for a stream nobody opened', frame(FRAME.stdout, Buffer.from('x'))],
    ['credit below zero', frame(FRAME.credit, Buffer.from('{"stream":"stdin","bytes":-5}'))],
  ])('ends the connection on %s', async (_what, bytes) => {
    const [near, far] = await socketPair()
    const closed = createDeferred<Kosa8Error | null>()
    new ExecConnection(far, Buffer.alloc(0), quiet({ onClose: closed.resolve }))
    near.on('error', () => undefined)
    near.write(bytes)
    expect((await closed.promise)?.code).toBe('INTERNAL')
    expect(far.destroyed).toBe(true)
  })

  it('ends the connection when more data comes than was asked for', async () => {
    const [near, far] = await socketPair()
    const closed = createDeferred<Kosa8Error | null>()
    new ExecConnection(far, Buffer.alloc(0), quiet({ onClose: closed.resolve })).openReadable('stdin')
    near.on('error', () => undefined)
    for (let sent = 0; sent <= 3 * CREDIT_BYTES; sent += 32_768) near.write(frame(FRAME.stdin, Buffer.alloc(32_768)))
    expect((await closed.promise)?.message).toContain('more data than was asked for')
  })
})
