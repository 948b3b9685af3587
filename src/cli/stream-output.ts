/** Prints a stream as the answer of a command. */
import { Transform, type Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { StringDecoder } from 'node:string_decoder'
import { makeLinesVisible } from '../report/visible.js'
import type { CliHost } from './host.js'

/** Copies bytes as they are; on a terminal, control characters from a guest are made visible. */
export async function printStream(host: CliHost, source: Readable): Promise<void> {
  const steps = host.terminals.stdout ? [source, visibleText(), host.stdout] as const : [source, host.stdout] as const
  await pipeline(steps, { end: false }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error
  })
}

function visibleText(): Transform {
  const decoder = new StringDecoder('utf8')
  return new Transform({
    transform(chunk: Buffer, _encoding, done) { done(null, makeLinesVisible(decoder.write(chunk))) },
    flush(done) { done(null, makeLinesVisible(decoder.end())) },
  })
}
