/** A worker that waits for a trial, stores its record and ends: HOME SOCKET PREFIX. */
import { createPaths } from '../../src/store/paths.js'
import { RunStore } from '../../src/store/run-store.js'
import { openRunQueue } from '../../src/queue/bullmq-queue.js'
import { aTrialRecord } from '../store/records.js'
import { claimSoon, queueConfig } from './bench.js'

const [home = '', socketPath = '', prefix = ''] = process.argv.slice(2)
const store = new RunStore(createPaths(home))
const queue = await openRunQueue(queueConfig(socketPath, store, { prefix }))
const claim = await claimSoon(queue)
if (claim === null) throw new Error('no trial came')
const { label, repeat, attempt } = claim
const stored = await store.storeTrialRecord(claim.run, aTrialRecord(claim.run, { label, repeat, attempt }))
console.log(JSON.stringify({ attempt, stored, finished: await claim.finish() }))
await queue.close()
