/**
 * Lines out of a byte stream, bounded: the framing below QMP.
 */
import { Kosa8Error } from '../../../errors/kosa8-error.js'

/** Longest line taken from QEMU, in bytes; its longest real answers have some kilobytes. */
const LINE_BYTES_MAX = 1024 * 1024

/** Collects bytes and gives back whole lines. */
export class LineFramer {
  private parts: Buffer[] = []
  private pendingBytes = 0

  constructor(private readonly lineBytesMax = LINE_BYTES_MAX) {}

  /**
   * Takes the next bytes; returns the lines that are complete now, without their ends.
   * @throws Kosa8Error MACHINE_PROTOCOL when a line gets too long.
   */
  push(chunk: Buffer): string[] {
    const lines: string[] = []
    let start = 0
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, start)) {
      this.keep(chunk.subarray(start, end))
      lines.push(Buffer.concat(this.parts).toString('utf8').trim())
      this.parts = []
      this.pendingBytes = 0
      start = end + 1
    }
    this.keep(chunk.subarray(start))
    return lines
  }

  private keep(part: Buffer): void {
    this.pendingBytes += part.length
    if (this.pendingBytes > this.lineBytesMax) {
      throw new Kosa8Error('MACHINE_PROTOCOL', `QEMU sent a line of more than ${this.lineBytesMax} bytes`)
    }
    if (part.length > 0) this.parts.push(part)
  }
}
