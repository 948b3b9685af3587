/**
 * Runs a script of the user's in the clone.
 *
 * Parameters: `content` (text of the script), `args` (list of texts), `env` (texts by name); every other
 * parameter reaches the script as KOSA8_PARAM_<NAME>. The script lies outside the workspace, so it is in no
 * diff. It has no terminal and nothing to read: a script that asks gets end-of-file and ends.
 */
import type { Strategy, StrategyContext } from '../src/model/strategy.js'
import { environmentOf } from './environment.js'

const OWN_PARAMETERS = new Set(['content', 'args', 'env'])
/** In the guest's own folder for kosa8, which no user's file shares. */
const SCRIPT_FILE = '/run/kosa8/approach-script'

const script: Strategy = {
  validate(parameters) {
    if (typeof parameters['content'] !== 'string' || parameters['content'] === '') {
      throw new Error('content must be the text of the script')
    }
    readArguments(parameters['args'])
    readEnvironment(parameters['env'])
  },

  async run(context: StrategyContext) {
    const { parameters } = context
    const content = String(parameters['content'])
    await context.writeFile(SCRIPT_FILE, content, 0o755)
    const command = content.startsWith('#!') ? [SCRIPT_FILE] : ['/bin/sh', SCRIPT_FILE]
    const { exitCode } = await context.exec([...command, ...readArguments(parameters['args'])], {
      env: { ...environmentOf(context, OWN_PARAMETERS), ...readEnvironment(parameters['env']) },
    })
    return { exitCode }
  },
}
export default script

function readArguments(value: unknown): string[] {
  if (value === undefined) return []
  if (!Array.isArray(value) || !value.every((item) => typeof item === 'string' || typeof item === 'number')) {
    throw new Error('args must be a list of texts')
  }
  return value.map(String)
}

function readEnvironment(value: unknown): Record<string, string> {
  if (value === undefined) return {}
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Error('env must map names to texts')
  const entries = Object.entries(value)
  for (const [name, text] of entries) {
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) throw new Error(`env has the name ${JSON.stringify(name)}, which no variable can have`)
    if (!['string', 'number', 'boolean'].includes(typeof text)) throw new Error(`env.${name} must be a text`)
  }
  return Object.fromEntries(entries.map(([name, text]) => [name, String(text)]))
}
