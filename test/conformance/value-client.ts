/** The host's side of the two value guests (the C program, and the fake driver's own). */
import { once } from 'node:events'
import type { Machine } from '../../src/hypervisor/driver.js'

/** Asks one line over a channel of its own and returns the answer. */
export async function ask(machine: Machine, line: string): Promise<string> {
  const channel = await machine.openChannel()
  let text = ''
  const answered = new Promise<string>((resolve, reject) => {
    channel.on('data', (chunk: Buffer) => {
      text += chunk.toString('utf8')
      if (text.endsWith('\n')) resolve(text.slice(0, -1))
    })
    channel.on('error', reject)
    channel.on('close', () => reject(new Error(`the channel closed before "${line}" was answered`)))
  })
  channel.write(`${line}\n`)
  const answer = await answered
  const closed = once(channel, 'close')
  channel.destroy()
  await closed
  return answer
}

/** Both values of a machine. */
export async function readValues(machine: Machine): Promise<{ memory: string; disk: string }> {
  return { memory: await ask(machine, 'get memory'), disk: await ask(machine, 'get disk') }
}

/** Sets both values of a machine to the same text. */
export async function writeValues(machine: Machine, text: string): Promise<void> {
  await ask(machine, `set memory ${text}`)
  await ask(machine, `set disk ${text}`)
}
