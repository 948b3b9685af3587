/** Reads a stream of text that must not be too long. */
import type { Readable } from 'node:stream'
import { Kosa8Error } from '../errors/kosa8-error.js'

/** Most output of each stream that is kept, in bytes. */
export const EXEC_OUTPUT_BYTES_MAX = 16 * 1024 * 1024

/** The whole text. @throws LIMIT_EXCEEDED beyond 16 MiB. */
export async function readText(stream: Readable): Promise<string> {
  const chunks: Buffer[] = []
  let sizeBytes = 0
  for await (const chunk of stream) {
    sizeBytes += (chunk as Buffer).length
    if (sizeBytes > EXEC_OUTPUT_BYTES_MAX) {
      throw new Kosa8Error('LIMIT_EXCEEDED', `the command printed more than ${EXEC_OUTPUT_BYTES_MAX} bytes`, { hint: 'use spawn() and read its streams' })
    }
    chunks.push(chunk as Buffer)
  }
  return Buffer.concat(chunks).toString('utf8')
}
