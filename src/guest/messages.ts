/**
 * Messages: what the payloads of frames say. Numbers are little endian; a string is its length with
 * the final NUL as 32 bits, its bytes, NUL.
 *
 * Owns: encoding requests and decoding answers, every length and count bounded. Pure.
 */
import { Kosa8Error } from '../errors/kosa8-error.js'
import { createProtocolError, NONCE_BYTES } from './frames.js'
import type { GuestCommand, GuestExit, GuestIdentity, LeftoverProcess } from './session.js'

/** The largest request for a command, bytes; also the agent's limit. */
export const EXEC_REQUEST_BYTES_MAX = 1024 * 1024
const STRING_BYTES_MAX = 256
const LEFTOVERS_MAX = 64
const EXEC_STDIN = 1
const EXEC_PTY = 2
const ACK_FROZEN = 1
const ACK_CGROUPS = 2
const ACK_INIT = 4
const ACK_LISTENING = 8
const ENTROPY_BYTES = 64
/** Bounds of what an agent may offer as the window of a command's standard input. */
const STDIN_WINDOW_MIN = 4 * 1024
const STDIN_WINDOW_MAX = 16 * 1024 * 1024

/** What the agent said of itself when the session began. */
export interface AgentFacts {
  protocolVersion: number
  /** Bytes the host may send ahead to one command's standard input. */
  stdinWindowBytes: number
  /** Commands that may be open at the same time. */
  commandsMax: number
  /** Processes are frozen: a restored machine before its identity is repaired. */
  isFrozen: boolean
  /** Every command has a cgroup of its own, so that its end reaches every process of it. */
  hasCgroups: boolean
  /** The agent is a machine's init, not a test's child. */
  isInit: boolean
  /** Its port for programs of the guest is open. */
  isListening: boolean
  kernelRelease: string
}

/** Reads a payload from its start; every read past its end is the guest's fault. */
class PayloadReader {
  private at = 0

  constructor(private readonly bytes: Buffer) {}

  take(count: number): Buffer {
    if (this.at + count > this.bytes.length) throw createProtocolError('a message that is too short')
    this.at += count
    return this.bytes.subarray(this.at - count, this.at)
  }

  takeU32(): number {
    return this.take(4).readUInt32LE(0)
  }

  /** Control characters are removed: the text ends up on terminals. */
  takeString(): string {
    const length = this.takeU32()
    if (length === 0 || length > STRING_BYTES_MAX) throw createProtocolError('a text of impossible length')
    const text = this.take(length).toString('utf8', 0, length - 1)
    return text.replace(/[\u0000-\u001f\u007f-\u009f]/g, '')
  }

  end(): void {
    if (this.at !== this.bytes.length) throw createProtocolError('a message that is too long')
  }
}

/** A payload of one number. */
export function encodeU32(value: number): Buffer {
  const bytes = Buffer.allocUnsafe(4)
  bytes.writeUInt32LE(value)
  return bytes
}

/** The payload of a terminal's size. */
export function encodeSize(size: { rows: number; columns: number }): Buffer {
  return Buffer.concat([encodeU16(size.rows), encodeU16(size.columns)])
}

/** A payload of one number of 16 bits. */
export function encodeU16(value: number): Buffer {
  const bytes = Buffer.allocUnsafe(2)
  bytes.writeUInt16LE(Math.min(Math.max(Math.trunc(value), 0), 0xffff))
  return bytes
}

function encodeString(text: string): Buffer {
  if (text.includes('\0')) throw new Kosa8Error('GUEST_COMMAND_FAILED', 'a command or path contains a NUL character')
  const bytes = Buffer.from(text)
  return Buffer.concat([encodeU32(bytes.length + 1), bytes, Buffer.alloc(1)])
}

/**
 * The request to run a command; may be longer than one frame.
 * @throws Kosa8Error GUEST_COMMAND_FAILED when it can be no command.
 */
export function encodeExec(command: GuestCommand, outputWindowBytes: number): Buffer {
  if (command.argv[0] === undefined || command.argv[0] === '') {
    throw new Kosa8Error('GUEST_COMMAND_FAILED', 'a command without a program name')
  }
  const environment = Object.entries(command.env ?? {})
  if (environment.some(([name]) => name === '' || name.includes('='))) {
    throw new Kosa8Error('GUEST_COMMAND_FAILED', 'an environment variable with an impossible name')
  }
  const flags = (command.stdin === true ? EXEC_STDIN : 0) | (command.pty === undefined ? 0 : EXEC_PTY)
  const request = Buffer.concat([
    encodeU32(flags), encodeSize(command.pty ?? { rows: 0, columns: 0 }),
    encodeU32(outputWindowBytes), encodeU32(outputWindowBytes),
    encodeString(command.cwd ?? ''), encodeString(command.user ?? ''),
    encodeU32(command.argv.length), ...command.argv.map(encodeString),
    encodeU32(environment.length), ...environment.map(([name, value]) => encodeString(`${name}=${value}`)),
  ])
  if (request.length > EXEC_REQUEST_BYTES_MAX) {
    throw new Kosa8Error('LIMIT_EXCEEDED', `arguments and environment of ${command.argv[0]} exceed ${EXEC_REQUEST_BYTES_MAX} bytes`)
  }
  return request
}

/** The host's time of day at this moment: what freezes and thaws carry. Whole milliseconds. */
export function encodeTimeOfDay(): Buffer {
  const time = Buffer.allocUnsafe(8)
  // The clock as it stands: counted from the start of a process it would miss what the host slept or was set.
  time.writeBigUInt64LE(BigInt(Date.now()) * 1_000_000n)
  return time
}

/** The request to repair the identity. */
export function encodeIdentity(identity: GuestIdentity): Buffer {
  if (identity.entropy.length !== ENTROPY_BYTES) {
    throw new Kosa8Error('IDENTITY_NOT_REPAIRED', `an identity needs ${ENTROPY_BYTES} bytes of entropy`)
  }
  return Buffer.concat([
    encodeTimeOfDay(), identity.entropy,
    encodeString(identity.hostname), encodeString(identity.machineId), encodeString(identity.cloneId),
  ])
}

/** The acknowledgement that begins a session. */
export function decodeAck(payload: Buffer): AgentFacts {
  const reader = new PayloadReader(payload)
  reader.take(NONCE_BYTES)
  const protocolVersion = reader.takeU32()
  if (protocolVersion !== 1) throw createProtocolError(`it speaks version ${protocolVersion}, this host speaks 1`)
  reader.takeU32() // its largest payload, which version 1 fixes
  const stdinWindowBytes = reader.takeU32()
  const commandsMax = reader.takeU32()
  const flags = reader.takeU32()
  const kernelRelease = reader.takeString()
  reader.end()
  if (stdinWindowBytes < STDIN_WINDOW_MIN || stdinWindowBytes > STDIN_WINDOW_MAX) {
    throw createProtocolError('an impossible window')
  }
  const has = (flag: number): boolean => (flags & flag) !== 0
  return {
    protocolVersion, stdinWindowBytes, commandsMax, kernelRelease,
    isFrozen: has(ACK_FROZEN), hasCgroups: has(ACK_CGROUPS), isInit: has(ACK_INIT), isListening: has(ACK_LISTENING),
  }
}

/** A payload of exactly one number. */
export function decodeU32(payload: Buffer): number {
  return decodeNumbers(payload, 1)[0] ?? 0
}

/** A payload of exactly `count` numbers. */
export function decodeNumbers(payload: Buffer, count: number): number[] {
  const reader = new PayloadReader(payload)
  const numbers = Array.from({ length: count }, () => reader.takeU32())
  reader.end()
  return numbers
}

/** How a command's first process ended. */
export function decodeExit(payload: Buffer): GuestExit {
  const [code = 0, signal = 0] = decodeNumbers(payload, 2)
  if (code > 255 || signal > 64) throw createProtocolError('an impossible exit status')
  return signal === 0 ? { code, signal: null } : { code: null, signal }
}

/** Why a command could not be started. */
export function decodeStartFailure(payload: Buffer): { errno: number; step: string } {
  const reader = new PayloadReader(payload)
  const failure = { errno: reader.takeU32(), step: reader.takeString() }
  reader.end()
  return failure
}

/** The answer to closing a command. */
export function decodeClosed(payload: Buffer): { allGone: boolean; leftovers: LeftoverProcess[] } {
  const reader = new PayloadReader(payload)
  const allGone = reader.takeU32() === 1
  const count = reader.takeU32()
  if (count > LEFTOVERS_MAX) throw createProtocolError('too many processes listed')
  const leftovers = Array.from({ length: count }, () => ({ pid: reader.takeU32(), name: reader.takeString() }))
  reader.end()
  return { allGone, leftovers }
}
