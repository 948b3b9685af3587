/** A second process for checkpoint-store.test.ts: `FILE NAME COUNT` adds records; COUNT 0 takes the lock and stays. */
import { FileCheckpointStore } from '../../src/sdk/checkpoint-store.js'
import { withFileLock } from '../../src/util/file-lock.js'

const [file = '', name = '', count = ''] = process.argv.slice(2)
if (count === '0') {
  await withFileLock(`${file}.lock`, async () => {
    console.log('locked')
    await new Promise((resolve) => setTimeout(resolve, 2 ** 30))
  })
}
const store = new FileCheckpointStore(file)
for (let n = 1; n <= Number(count); n += 1) {
  const record = { id: `${name}-ckpt-${n}`, sandbox: 'all', label: null, by: 'you', created_at: '2026-01-02T03:04:05.000Z' }
  await store.update((list) => ({ ...list, sandboxes: { all: [...list.sandboxes['all'] ?? [], record] } }))
}
