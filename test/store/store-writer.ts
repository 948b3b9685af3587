/** A second process for run-store.test.ts: `record HOME RUN ATTEMPT` or `events HOME RUN LETTER`. */
import type { RunId } from '../../src/model/ids.js'
import { createPaths } from '../../src/store/paths.js'
import { RunStore } from '../../src/store/run-store.js'
import { aTrialRecord } from './records.js'

const [mode, home = '', run, value = ''] = process.argv.slice(2)
const store = new RunStore(createPaths(home))

if (mode === 'record') {
  console.log(JSON.stringify(await store.storeTrialRecord(run as RunId, aTrialRecord(run as RunId, { attempt: Number(value) }))))
} else {
  for (let i = 0; i < 300; i += 1) {
    await store.appendEvent(run as RunId, { type: 'trial-output', label: 'a', repeat: 1, stream: 'stdout', text: value.repeat(500) })
  }
}
