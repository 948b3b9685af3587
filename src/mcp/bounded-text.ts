/** Text from a sandbox within bounds: what an agent's context can take. */

/** Most bytes of one stream or file part that a tool answers with. */
export const OUTPUT_BYTES_MAX = 64 * 1024

/** The beginning and the end of a stream of any length, as text. */
export class BoundedText {
  private head = Buffer.alloc(0)
  private tail = Buffer.alloc(0)
  /** Bytes between the two that are not kept. */
  omittedBytes = 0

  /** @param bytesMax how much is kept, half of it from the beginning */
  constructor(private readonly bytesMax: number) {}

  add(chunk: Buffer): void {
    const half = Math.ceil(this.bytesMax / 2)
    const room = half - this.head.length
    if (room > 0) this.head = Buffer.concat([this.head, chunk.subarray(0, room)])
    const rest = chunk.subarray(Math.max(0, room))
    if (rest.length === 0) return
    const joined = Buffer.concat([this.tail, rest])
    const excess = Math.max(0, joined.length - (this.bytesMax - half))
    this.tail = joined.subarray(excess)
    this.omittedBytes += excess
  }

  /** What was kept; where something is left out, a line says how much. */
  toString(): string {
    if (this.omittedBytes === 0) return Buffer.concat([this.head, this.tail]).toString('utf8')
    return `${decodeStart(this.head)}\n[… ${this.omittedBytes} bytes left out …]\n${decodeEnd(this.tail)}`
  }
}

/** Reads a stream to its end, whatever its length. */
export async function collectText(stream: AsyncIterable<unknown>, into: BoundedText): Promise<BoundedText> {
  for await (const chunk of stream) into.add(chunk as Buffer)
  return into
}

/** Cuts text to a length with an ellipsis. */
export function shorten(text: string, lengthMax: number): string {
  return text.length <= lengthMax ? text : `${text.slice(0, lengthMax - 1)}…`
}

/** Without the half of a character that a cut left at the end. */
function decodeStart(bytes: Buffer): string {
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes, { stream: true })
}

/** Without the half of a character that a cut left at the beginning. */
function decodeEnd(bytes: Buffer): string {
  let start = 0
  while (start < 3 && ((bytes[start] ?? 0) & 0xc0) === 0x80) start += 1
  return bytes.subarray(start).toString('utf8')
}
