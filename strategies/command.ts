/**
 * Runs a shell command in the clone.
 *
 * Parameter: `run`; every other one, matrix values included, reaches the command as KOSA8_PARAM_<NAME>.
 */
import type { Strategy, StrategyContext } from '../src/model/strategy.js'
import { environmentOf } from './environment.js'

const OWN_PARAMETERS = new Set(['run'])

const command: Strategy = {
  validate(parameters) {
    if (typeof parameters['run'] !== 'string' || parameters['run'].trim() === '') throw new Error('run must be a shell command')
  },

  async run(context: StrategyContext) {
    const { exitCode } = await context.exec(['/bin/sh', '-c', String(context.parameters['run'])], {
      env: environmentOf(context, OWN_PARAMETERS),
    })
    return { exitCode }
  },
}
export default command
