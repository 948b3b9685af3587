import { describe, expect, it } from 'vitest'
import { LINE_BYTES_MAX, formatEvent, parseEvents, splitLines } from '../../src/protocol/streams.js'

async function* pieces(text: string, size: number): AsyncGenerator<Uint8Array> {
  const bytes = Buffer.from(text)
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
}

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const item of items) all.push(item)
  return all
}

describe('event streams', () => {
  it.each([1, 2, 3, 7, 1000])('are read alike in pieces of %i bytes, characters of several bytes included', async (size) => {
    const text = `: alive\n\n${formatEvent(3, '{"text":"grün €"}')}${formatEvent(4, '{}')}`
    expect(await collect(parseEvents(pieces(text, size)))).toEqual([{ id: '3', data: '{"text":"grün €"}' }, { id: '4', data: '{}' }])
  })

  it('drop an event that was cut off', async () => {
    expect(await collect(parseEvents(pieces(`${formatEvent(1, '{}')}id: 2\ndata: {`, 5)))).toHaveLength(1)
  })

  it('are given up when a line never ends', async () => {
    await expect(collect(splitLines(pieces('x'.repeat(LINE_BYTES_MAX + 1), 65536)))).rejects.toThrow('a line of more than')
  })
})
