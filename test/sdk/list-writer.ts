/**
 * A process of its own for checkpoint-store.test.ts. `hold FILE` takes the lock of a list and stays; `cli|sdk HOME COUNT
 * SANDBOX…` takes so many checkpoints, one sandbox after the other, by command lines or with the SDK.
 */
import { withFileLock } from '../../src/util/file-lock.js'

const [how = '', place = '', count = '', ...sandboxes] = process.argv.slice(2)

if (how === 'hold') {
  await withFileLock(`${place}.lock`, async () => {
    console.log('locked')
    await new Promise((resolve) => setTimeout(resolve, 2 ** 30))
  })
}

// Only now: who holds the lock needs none of it, and loading it takes seconds.
const { readSettings } = await import('../../src/config/environment.js')
const { Kosa8Client } = await import('../../src/sdk/index.js')
const { typeCommand } = await import('../cli/run-cli.js')

console.log('begins')
const client = new Kosa8Client({ home: place, startsDaemon: false })
const settings = readSettings({ KOSA8_HOME: place, NO_COLOR: '1' })
for (let n = 0; n < Number(count); n += 1) {
  const sandbox = sandboxes[n % sandboxes.length] as string
  if (how === 'sdk') {
    await client.checkpoint(sandbox)
    continue
  }
  const { status, stderr } = await typeCommand(['checkpoint', sandbox], { settings })
  if (status !== 0) throw new Error(stderr)
}
