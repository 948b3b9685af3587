/**
 * Applies a patch of the user's in the clone.
 *
 * Parameter: `content`, a patch as `git diff --binary` prints it. The whole patch applies or nothing of it;
 * the index is left alone. The patch lies outside the workspace, so it is in no diff.
 */
import type { Strategy, StrategyContext } from '../src/model/strategy.js'
import { environmentOf } from './environment.js'

const OWN_PARAMETERS = new Set(['content'])
const PATCH_FILE = '/run/kosa8/approach.patch'
/** Configuration of the guest's repository must not change what a patch does. */
const GIT_APPLY = ['git', '-c', 'apply.whitespace=nowarn', '-c', 'apply.ignoreWhitespace=no', '-c', 'core.fsmonitor=false',
  'apply', '--whitespace=nowarn', PATCH_FILE]

const patch: Strategy = {
  validate(parameters) {
    if (typeof parameters['content'] !== 'string' || parameters['content'].trim() === '') throw new Error('content must be the text of a patch')
  },

  async run(context: StrategyContext) {
    await context.writeFile(PATCH_FILE, String(context.parameters['content']))
    const { exitCode, stderr } = await context.exec(GIT_APPLY, { env: environmentOf(context, OWN_PARAMETERS) })
    if (exitCode === 0) return { exitCode }
    const reason = stderr.trim().split('\n')[0]?.replace(/^error: /, '') ?? ''
    return { exitCode, notes: [`the patch does not apply: ${reason === '' ? `git apply ended with status ${exitCode}` : reason}`] }
  },
}
export default patch
