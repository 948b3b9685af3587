import { duplexPair, type Duplex } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { QmpClient } from '../../src/hypervisor/qemu/qmp/client.js'
import { LineFramer } from '../../src/hypervisor/qemu/qmp/framing.js'

const GREETING = '{"QMP": {"version": {}, "capabilities": []}}\r\n'

interface Conversation {
  client: QmpClient
  qemu: Duplex
  /** The next command QEMU receives. */
  nextCommand: () => Promise<{ execute: string; id: number }>
}

/** A client and QEMU's end of its socket. */
function converse(): Conversation {
  const [ours, qemu] = duplexPair()
  const lines: string[] = []
  const waiting: ((line: string) => void)[] = []
  const framer = new LineFramer()
  qemu.on('data', (chunk: Buffer) => {
    for (const line of framer.push(chunk)) {
      const receiver = waiting.shift()
      if (receiver === undefined) lines.push(line)
      else receiver(line)
    }
  })
  const nextLine = (): Promise<string> => {
    const line = lines.shift()
    return line === undefined ? new Promise((resolve) => waiting.push(resolve)) : Promise.resolve(line)
  }
  return {
    client: new QmpClient(ours),
    qemu,
    nextCommand: async () => JSON.parse(await nextLine()) as { execute: string; id: number },
  }
}

async function negotiated(): Promise<Conversation> {
  const conversation = converse()
  const ready = conversation.client.negotiate(10_000)
  conversation.qemu.write(GREETING)
  const { execute, id } = await conversation.nextCommand()
  expect(execute).toBe('qmp_capabilities')
  conversation.qemu.write(`{"return": {}, "id": ${id}}\n`)
  await ready
  return conversation
}

describe('a QMP conversation', () => {
  it('gives each command its own reply, in whatever order they come', async () => {
    const { client, qemu, nextCommand } = await negotiated()
    const calls = [client.call('one'), client.call('two')]
    const [first, second] = [await nextCommand(), await nextCommand()]
    qemu.write(`{"return": "second", "id": ${second.id}}\n{"return": "first", "id": ${first.id}}\n`)
    expect(await Promise.all(calls)).toEqual(['first', 'second'])
  })

  it('tells of events between replies, cut anywhere', async () => {
    const { client, qemu } = await negotiated()
    const event = new Promise((resolve) => client.onEvent(resolve))
    const text = '{"event": "SHUTDOWN", "data": {"guest": true}, "timestamp": {}}\r\n'
    qemu.write(text.slice(0, 20))
    qemu.write(text.slice(20))
    expect(await event).toEqual({ name: 'SHUTDOWN', data: { guest: true } })
  })

  it('passes on what QEMU refuses, with the name of the command', async () => {
    const { client, qemu, nextCommand } = await negotiated()
    const call = client.call('eject')
    const { id } = await nextCommand()
    qemu.write(`{"error": {"class": "GenericError", "desc": "no such device"}, "id": ${id}}\n`)
    await expect(call).rejects.toMatchObject({ code: 'MACHINE_PROTOCOL', message: 'QEMU refused eject: GenericError: no such device' })
  })

  it('settles every pending call with one error when the connection goes', async () => {
    const { client, qemu } = await negotiated()
    const calls = Promise.allSettled([client.call('one'), client.call('two')])
    qemu.end()
    const errors = (await calls).map((call) => (call as PromiseRejectedResult).reason as Error)
    expect(errors[0]).toBe(errors[1])
    expect(errors[0]).toMatchObject({ code: 'MACHINE_GONE' })
    await expect(client.call('three')).rejects.toBe(errors[0])
    expect(await client.lost).toBe(errors[0])
  })

  it.each([
    ['no JSON', 'hello\n'],
    ['no message of QMP', '[1]\n'],
    ['a reply nobody waits for', '{"return": {}, "id": 99}\n'],
    ['a second greeting', GREETING],
  ])('ends when QEMU sends %s', async (_, text) => {
    const { client, qemu } = await negotiated()
    const call = client.call('one')
    qemu.write(text)
    await expect(call).rejects.toMatchObject({ code: 'MACHINE_PROTOCOL' })
  })

  it('refuses commands before negotiation', async () => {
    await expect(converse().client.call('stop')).rejects.toMatchObject({ code: 'INTERNAL' })
  })

  it('bounds the length of a line, also of one that never ends', () => {
    const framer = new LineFramer(10)
    expect(framer.push(Buffer.from('0123456789\n'))).toEqual(['0123456789'])
    framer.push(Buffer.from('01234567'))
    expect(() => framer.push(Buffer.from('89a'))).toThrow('more than 10 bytes')
  })
})
