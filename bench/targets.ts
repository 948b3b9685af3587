/**
 * The figures we promise, and how the measured ones stand to them. Asserts nothing: a benchmark informs.
 */
import { median, summarize, type Series } from './statistics.js'

/** One promised ratio. */
export interface Target {
  claim: string
  measured: number
  /** The promise, e.g. "at most 3". */
  promised: string
  isMet: boolean
}

/** Compares what was measured with what is promised; a claim whose series are not there is left out. */
export function compareWithTargets(series: readonly Series[]): Target[] {
  const find = (label: string): number[] | undefined => series.find((each) => each.label === label)?.values
  const targets: Target[] = []
  const ratio = (claim: string, above: string, below: string, limit: { atMost: number } | { atLeast: number }): void => {
    const [over, under] = [find(above), find(below)]
    if (over !== undefined && under !== undefined) targets.push(judge(claim, median(over) / median(under), limit))
  }
  const clone = 'clone: request to first command'
  ratio('clone to first command / bare QEMU spawn to loaded', clone, 'bare QEMU: spawn to loaded', { atMost: 3 })
  ratio('loadvm to first command / clone to first command', 'loadvm: start to first command', clone, { atLeast: 10 })
  ratio('cold boot to first command / clone to first command', 'cold boot: request to first command', clone, { atLeast: 30 })
  for (const count of [16, 64]) {
    ratio(`rate of ${count} clones at once / of bare QEMUs`,
      `${count} at once: clones with identity`, `${count} at once: bare QEMU`, { atLeast: 0.85 })
  }
  for (const afterS of [0, 5, 30]) {
    const label = `private memory after ${afterS} s`
    ratio(`${label}: clone / bare QEMU`, `${label}: clone`, `${label}: bare QEMU`, { atMost: 1.25 })
  }
  for (const { label, values } of series) {
    if (label.includes('pause / (')) targets.push(judge(label, median(values), { atMost: 1 }))
  }
  const rewind = find('rewind: request to agent answering')
  if (rewind !== undefined) targets.push(judge('rewind to an answering agent, ms', summarize(rewind).p50, { atMost: 150 }))
  // As slow as the guide's own slowest, on its machine: a 1 GiB sandbox took 647 to 2,281 ms to save, 509 to 1,065 ms to restore.
  for (const [label, atMost] of [['kosa8 checkpoint, 1 GiB: save_ms', 2281], ['kosa8 rewind, 1 GiB: restore_ms', 1065]] as const) {
    const values = find(label)
    if (values !== undefined) targets.push(judge(label, median(values), { atMost }))
  }
  const overhead = find('kosa8 fork: time beside strategy and tests')
  if (overhead !== undefined) targets.push(judge('kosa8 fork: that time / a run of 5 minutes', median(overhead) / (5 * 60_000), { atMost: 0.03 }))
  return targets
}

function judge(claim: string, measured: number, limit: { atMost: number } | { atLeast: number }): Target {
  const isMet = 'atMost' in limit ? measured <= limit.atMost : measured >= limit.atLeast
  const promised = 'atMost' in limit ? `at most ${limit.atMost}` : `at least ${limit.atLeast}`
  return { claim, measured, promised, isMet }
}
