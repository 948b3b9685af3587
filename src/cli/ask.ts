/**
 * Questions to the person at the terminal.
 *
 * Owns: reading one line at a time, so that what is typed ahead answers the next question, and not showing a
 * passphrase that is typed.
 */
import type { Readable, Writable } from 'node:stream'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { CliHost } from './host.js'

/** Keys that mean something where the terminal leaves them to us. */
const ETX = 0x03
const BACKSPACES = /[^\u0008\u007f]?[\u0008\u007f]/u

/** Asks a yes-or-no question on `out`; anything but yes is no, so is the end of input. */
export async function confirm(host: CliHost, out: Writable, question: string): Promise<boolean> {
  out.write(`${question} [y/N] `)
  const answer = await readLine(host.stdin)
  if (!host.terminals.stdin) out.write('\n')
  return answer !== null && /^y(es)?$/i.test(answer.trim())
}

/** Asks for a passphrase on standard error; empty at the end of input. @throws CANCELLED for Ctrl-C. */
export async function askSecret(host: CliHost, question: string): Promise<string> {
  host.stderr.write(`${question}: `)
  host.setRawMode(true)
  try {
    let answer = await readLine(host.stdin) ?? ''
    while (BACKSPACES.test(answer)) answer = answer.replace(BACKSPACES, '')
    return answer
  } finally {
    host.setRawMode(false)
    host.stderr.write('\n')
  }
}

/** The next line without its end; null when there is none. What comes after it stays in the stream. */
async function readLine(stdin: Readable): Promise<string | null> {
  const bytes: number[] = []
  return new Promise((resolve, reject) => {
    const finish = (settle: () => void): void => {
      stdin.off('readable', look).off('end', onEnd)
      settle()
    }
    const onEnd = (): void => finish(() => resolve(bytes.length === 0 ? null : Buffer.from(bytes).toString('utf8')))
    const look = (): void => {
      for (let chunk = stdin.read() as Buffer | null; chunk !== null; chunk = stdin.read() as Buffer | null) {
        for (const [index, byte] of chunk.entries()) {
          if (byte === ETX) return finish(() => reject(new Kosa8Error('CANCELLED', 'nothing was done')))
          if (byte !== 0x0a && byte !== 0x0d) {
            bytes.push(byte)
            continue
          }
          if (index + 1 < chunk.length) stdin.unshift(chunk.subarray(index + 1))
          return finish(() => resolve(Buffer.from(bytes).toString('utf8')))
        }
      }
    }
    if (stdin.readableEnded) return resolve(null)
    stdin.on('readable', look).on('end', onEnd)
  })
}
