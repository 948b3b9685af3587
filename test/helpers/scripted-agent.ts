/**
 * The agent of a fake machine, as the test tells it to behave: it greets, and answers each request as scripted or never.
 *
 * Owns: the guest's end of the channel. What it says are real frames, so that the host's code is the one under test.
 */
import type { Duplex } from 'node:stream'
import { encodeFrame, FRAME_TYPE, FrameReader, NONCE_BYTES, encodeHello, type Frame } from '../../src/guest/frames.js'
import type { FakeGuest } from '../../src/hypervisor/fake/fake-guest.js'

/** The steps of an identity in the order of its answer (guest/PROTOCOL.md). */
export const IDENTITY_STEPS = ['clock', 'entropy', 'reseed', 'hostname', 'machineId', 'cloneId', 'hook', 'thaw'] as const

/** How the agent behaves; without a script it does everything it is asked for. */
export interface AgentScript {
  /** Numbers of errors by step; 0 where it succeeds. */
  identity?: Partial<Record<(typeof IDENTITY_STEPS)[number], number>>
  /** Called when the repair is asked for; the answer waits for it, for ever if need be. */
  beforeIdentity?: () => Promise<void>
  /** Answers with this payload instead. */
  identityPayload?: Buffer
  /** Never answers a greeting. */
  isDeaf?: boolean
}

const HELLO_BYTES = encodeHello(Buffer.alloc(NONCE_BYTES)).length

/** Numbers as the guest sends them. */
export function u32(...values: number[]): Buffer {
  const bytes = Buffer.alloc(4 * values.length)
  values.forEach((value, index) => bytes.writeUInt32LE(value, 4 * index))
  return bytes
}

/** A text as the guest sends it. */
export function text(value: string): Buffer {
  return Buffer.concat([u32(value.length + 1), Buffer.from(`${value}\0`)])
}

/** The acknowledgement of a greeting. */
export function encodeAck(nonce: Uint8Array): Buffer {
  const payload = Buffer.concat([nonce, u32(1, 32768, 65536, 256, 0), text('6.1')])
  return encodeFrame({ type: FRAME_TYPE.helloAck, flags: 0, stream: 0, payload })
}

/** A guest whose agent follows a script. */
export class ScriptedAgent implements FakeGuest {
  /** Kinds of the requests it got, in order. */
  readonly asked: number[] = []

  constructor(private readonly script: AgentScript = {}) {}

  serve(channel: Duplex): void {
    const reader = new FrameReader()
    let greeting = Buffer.alloc(0)
    channel.on('data', (chunk: Buffer) => {
      if (this.script.isDeaf === true) return
      const missing = HELLO_BYTES - greeting.length
      if (missing > 0) {
        greeting = Buffer.concat([greeting, chunk.subarray(0, missing)])
        if (greeting.length === HELLO_BYTES) channel.write(encodeAck(greeting.subarray(HELLO_BYTES - 4 - NONCE_BYTES, HELLO_BYTES - 4)))
      }
      if (chunk.length > missing) reader.push(chunk.subarray(Math.max(0, missing)), (frame) => void this.answer(channel, frame))
    })
  }

  save(): string {
    return 'an agent'
  }

  setPaused(): void {
    // Its channel is opened before it goes on, and it says nothing by itself.
  }

  private async answer(channel: Duplex, { type, stream }: Frame): Promise<void> {
    this.asked.push(type)
    const send = (answer: number, payload: Buffer): void => {
      if (!channel.destroyed) channel.write(encodeFrame({ type: answer, flags: 0, stream, payload }))
    }
    if (type === FRAME_TYPE.quiesce) send(FRAME_TYPE.quiesced, u32(0))
    if (type === FRAME_TYPE.thaw) send(FRAME_TYPE.thawed, u32(0))
    if (type !== FRAME_TYPE.identity) return
    await this.script.beforeIdentity?.()
    const errors = IDENTITY_STEPS.map((step) => this.script.identity?.[step] ?? 0)
    send(FRAME_TYPE.identityDone, this.script.identityPayload ?? u32(...errors))
  }
}
