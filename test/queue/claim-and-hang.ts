/** A worker that claims a trial, says so and hangs until it is killed: HOME SOCKET PREFIX. */
import { createPaths } from '../../src/store/paths.js'
import { RunStore } from '../../src/store/run-store.js'
import { openRunQueue } from '../../src/queue/bullmq-queue.js'
import { queueConfig } from './bench.js'

const [home = '', socketPath = '', prefix = ''] = process.argv.slice(2)
const queue = await openRunQueue(queueConfig(socketPath, new RunStore(createPaths(home)), { prefix }))
const claim = await queue.claimTrial('to-be-killed')
console.log(JSON.stringify({ trial: claim?.trial, attempt: claim?.attempt }))
