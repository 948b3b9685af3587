/** Tools for files in a sandbox: read a part, write a whole. */
import { z } from 'zod'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { sandboxNameSchema } from '../model/ids.js'
import { OUTPUT_BYTES_MAX } from './bounded-text.js'
import { defineTool } from './tool.js'

/** Largest content of a written file, in characters as it is sent. */
const CONTENT_LENGTH_MAX = 16 * 1024 * 1024

const name = sandboxNameSchema.describe('name of the sandbox')
const path = z.string().min(1).max(4096).describe('absolute, or relative to /workspace')

const read = defineTool({
  name: 'sandbox_read_file',
  title: 'Read a file of a sandbox',
  description: `Reads a file of a sandbox, at most ${OUTPUT_BYTES_MAX / 1024} KiB at a time. Text comes as text, anything else as base64. `
    + 'When there is more, `nextOffset` says where to go on.',
  annotations: { readOnlyHint: true },
  input: z.strictObject({
    name, path,
    offset: z.number().int().min(0).default(0).describe('first byte wanted'),
    bytesMax: z.number().int().min(4).max(OUTPUT_BYTES_MAX).default(OUTPUT_BYTES_MAX).describe('most bytes wanted'),
  }),
  run: async ({ client }, input) => {
    const { bytes, hasMore } = await readPart(await client.sandbox(input.name).readFile(input.path), input.offset, input.bytesMax)
    const text = decodeText(bytes, hasMore)
    const usedBytes = text === null ? bytes.length : Buffer.byteLength(text)
    const nextOffset = hasMore ? input.offset + usedBytes : null
    const content = text ?? bytes.toString('base64')
    return {
      text: nextOffset === null ? content : `${content}\n[… the file goes on: read from offset ${nextOffset} …]`,
      content: { path: input.path, encoding: text === null ? 'base64' : 'utf8', content, bytes: usedBytes, nextOffset },
    }
  },
})

const write = defineTool({
  name: 'sandbox_write_file',
  title: 'Write a file of a sandbox',
  description: 'Writes a whole file into a sandbox, in place of one that is there. Missing folders are made.',
  annotations: { destructiveHint: true, idempotentHint: true },
  input: z.strictObject({
    name, path,
    content: z.string().max(CONTENT_LENGTH_MAX),
    encoding: z.enum(['utf8', 'base64']).default('utf8').describe('what `content` is'),
    mode: z.string().regex(/^[0-7]{3,4}$/, 'use octal permission bits such as 755').optional().describe('octal permission bits, e.g. 755 for a script'),
  }),
  run: async ({ client }, { name: sandbox, path: file, content, encoding, mode }) => {
    if (encoding === 'base64' && !z.base64().safeParse(content).success) throw new Kosa8Error('USAGE', 'content is no base64')
    const bytes = Buffer.from(content, encoding)
    await client.sandbox(sandbox).writeFile(file, bytes, mode === undefined ? undefined : Number.parseInt(mode, 8))
    return { text: `wrote ${bytes.length} bytes to ${file}`, content: { path: file, bytes: bytes.length } }
  },
})

/** Bytes from `offset` on; the rest of the file is not fetched. */
async function readPart(stream: AsyncIterable<unknown>, offset: number, bytesMax: number): Promise<{ bytes: Buffer; hasMore: boolean }> {
  const chunks: Buffer[] = []
  let skip = offset
  let missing = bytesMax
  for await (const chunk of stream) {
    const rest = (chunk as Buffer).subarray(skip)
    skip -= (chunk as Buffer).length - rest.length
    if (rest.length > missing) {
      chunks.push(rest.subarray(0, missing))
      return { bytes: Buffer.concat(chunks), hasMore: true }
    }
    chunks.push(rest)
    missing -= rest.length
  }
  return { bytes: Buffer.concat(chunks), hasMore: false }
}

/** Null for what is not text. A character cut off at the end belongs to the next part. */
function decodeText(bytes: Buffer, hasMore: boolean): string | null {
  if (bytes.includes(0)) return null
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes, { stream: hasMore })
  } catch {
    return null
  }
}

export const FILE_TOOLS = [read, write]
