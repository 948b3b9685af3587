import { randomBytes } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { AckScanner, decodeFrame, encodeFrame, FRAME_TYPE, FrameReader, type Frame } from '../../src/guest/frames.js'

const dataFrame = (payload: Uint8Array): Buffer => encodeFrame({ type: FRAME_TYPE.data, flags: 1, stream: 7, payload })

describe('FrameReader', () => {
  test('finds every frame however the bytes are cut', () => {
    const sent = Array.from({ length: 50 }, (_, index) => randomBytes(index * 37))
    const bytes = Buffer.concat(sent.map(dataFrame))
    for (const step of [1, 7, 23, 4096]) {
      const reader = new FrameReader()
      const got: Frame[] = []
      for (let at = 0; at < bytes.length; at += step) {
        reader.push(bytes.subarray(at, at + step), (frame) => got.push({ ...frame, payload: Buffer.from(frame.payload) }))
      }
      expect(got.map((frame) => frame.payload)).toEqual(sent)
      expect(got.every((frame) => frame.type === FRAME_TYPE.data && frame.flags === 1 && frame.stream === 7)).toBe(true)
    }
  })

  test.each([
    ['a wrong magic', (bytes: Buffer) => bytes.writeUInt8(0, 0)],
    ['a header that does not match its checksum', (bytes: Buffer) => bytes.writeUInt8(9, 4)],
    ['a trailer of another frame', (bytes: Buffer) => bytes.writeUInt32LE(1, bytes.length - 4)],
  ])('refuses %s', (_what, damage) => {
    const bytes = dataFrame(Buffer.from('payload'))
    damage(bytes)
    expect(() => decodeFrame(bytes)).toThrow(expect.objectContaining({ code: 'GUEST_PROTOCOL' }))
  })

  test('refuses a payload longer than a frame may have, before it has come', () => {
    const bytes = dataFrame(Buffer.alloc(40_000)).subarray(0, 20)
    expect(() => decodeFrame(bytes)).toThrow(expect.objectContaining({ code: 'GUEST_PROTOCOL' }))
  })
})

describe('AckScanner', () => {
  const nonce = randomBytes(16)
  const ackWith = (bytes: Buffer): Buffer =>
    encodeFrame({ type: FRAME_TYPE.helloAck, flags: 0, stream: 0, payload: Buffer.concat([bytes, Buffer.alloc(20)]) })

  test.each([1, 5, 1000])('finds its acknowledgement behind what an earlier session left, %i bytes at a time', (step) => {
    const left = Buffer.concat([
      dataFrame(randomBytes(500)).subarray(123), // half a frame
      ackWith(randomBytes(16)), // the answer to somebody else
      dataFrame(nonce), // the right number in the wrong place
      encodeFrame({ type: FRAME_TYPE.helloAck, flags: 0, stream: 0, payload: nonce }).subarray(0, 30),
    ])
    const bytes = Buffer.concat([left, ackWith(nonce), Buffer.from('rest')])
    const scanner = new AckScanner(nonce)
    let found: ReturnType<AckScanner['push']> = null
    let at = 0
    for (; found === null && at < bytes.length; at += step) found = scanner.push(bytes.subarray(at, at + step))
    expect(found?.frame.payload.subarray(0, 16)).toEqual(nonce)
    expect(Buffer.concat([found?.rest ?? Buffer.alloc(0), bytes.subarray(at)]).toString()).toBe('rest')
  })
})
