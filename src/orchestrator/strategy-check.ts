/**
 * Checks every approach's parameters before anything starts.
 *
 * Owns: where a user's own module is loaded for that: in a thread with limits, so that nothing it does or leaves
 * behind stays in the daemon. The trial loads it anew.
 */
import { Kosa8Error, parseError, type ErrorRecord } from '../errors/kosa8-error.js'
import type { ApproachPlan } from '../model/run.js'
import { startThread } from '../util/thread.js'
import { checkParameters, loadStrategy } from './strategy-loader.js'

/** Bounds of loading and asking the modules of one run. */
const CHECK_TIMEOUT_MS = 30_000
const CHECK_HEAP_MIB = 512

/** @throws APPROACH_INVALID naming the approach and what its strategy says of the parameters, or the module's own error. */
export async function checkStrategies(approaches: readonly ApproachPlan[], timeoutMs = CHECK_TIMEOUT_MS): Promise<void> {
  for (const approach of approaches) {
    if (approach.strategy.kind === 'builtin') checkParameters(await loadStrategy(approach.strategy), approach)
  }
  const modules = approaches.filter(({ strategy }) => strategy.kind === 'module')
  if (modules.length === 0) return
  const thread = startThread(new URL('./strategy-check-worker', import.meta.url), {
    workerData: modules, resourceLimits: { maxOldGenerationSizeMb: CHECK_HEAP_MIB }, stdout: true, stderr: true,
  })
  let timer: NodeJS.Timeout | undefined
  try {
    const refusal = await new Promise<ErrorRecord | null>((resolve, reject) => {
      const refuse = (why: string): void => reject(new Kosa8Error('APPROACH_INVALID', `${describe(modules)} ${why}`, {
        hint: 'run the module by itself to see why',
      }))
      thread.once('message', resolve)
      thread.once('error', (error) => refuse(`could not be loaded: ${error.message}`))
      thread.once('exit', () => refuse('ended the process while being loaded'))
      timer = setTimeout(() => refuse(`did not load within ${timeoutMs} ms`), timeoutMs)
    })
    if (refusal !== null) throw parseError(refusal)
  } finally {
    clearTimeout(timer)
    await thread.terminate()
  }
}

function describe(modules: readonly ApproachPlan[]): string {
  const paths = new Set(modules.map(({ strategy }) => (strategy.kind === 'module' ? strategy.path : strategy.name)))
  return [...paths].join(', ')
}
