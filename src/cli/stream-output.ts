/** Prints a stream as the answer of a command. */
import { Transform, type Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { StringDecoder } from 'node:string_decoder'
import { makeLinesVisible } from '../report/visible.js'
import type { CliHost } from './host.js'

/** Copies bytes as they are; on a terminal, control characters from a guest are made visible. Ends early where nobody reads. */
export async function printStream(host: CliHost, source: Readable): Promise<void> {
  await copyToOutput(host, source).catch((error: unknown) => {
    if (!isClosedOutput(error)) throw error
  })
}

/** The same, but rejects where nobody reads any more: {@link isClosedOutput}. */
export async function copyToOutput(host: CliHost, source: Readable): Promise<void> {
  const steps = host.terminals.stdout ? [source, visibleText(), host.stdout] as const : [source, host.stdout] as const
  await pipeline(steps, { end: false })
}

/** Whoever read our output has gone, as `head` does after its lines. */
export function isClosedOutput(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === 'EPIPE'
}

function visibleText(): Transform {
  const decoder = new StringDecoder('utf8')
  return new Transform({
    transform(chunk: Buffer, _encoding, done) { done(null, makeLinesVisible(decoder.write(chunk))) },
    flush(done) { done(null, makeLinesVisible(decoder.end())) },
  })
}
