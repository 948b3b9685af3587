/**
 * Loads strategy modules: the only place where code is found by path.
 *
 * Owns: finding a built-in strategy, loading a user's own module (TypeScript or JavaScript), checking
 * that what it exports is a strategy. A user's module runs on the host with the user's rights: it is
 * part of the repository the user asked us to work on, and the documentation says so.
 */
import { createJiti } from 'jiti'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { ApproachPlan, StrategyReference } from '../model/run.js'
import type { Strategy } from '../model/strategy.js'

/** @throws APPROACH_INVALID when the module cannot be loaded or exports no strategy. */
export async function loadStrategy(reference: StrategyReference): Promise<Strategy> {
  const place = reference.kind === 'builtin' ? `built-in strategy ${reference.name}` : reference.path
  let exported: unknown
  try {
    exported = reference.kind === 'builtin'
      ? await importBuiltin(reference.name)
      : await createJiti(import.meta.url, { moduleCache: false }).import(reference.path, { default: true })
  } catch (error) {
    throw new Kosa8Error('APPROACH_INVALID', `${place} could not be loaded: ${messageOf(error)}`, {
      hint: 'run the module by itself to see the error in full', cause: error,
    })
  }
  if (!isStrategy(exported)) {
    throw new Kosa8Error('APPROACH_INVALID', `${place} has no default export with a run function`, {
      hint: 'export a Strategy as described in docs/approaches-and-strategies.md',
    })
  }
  return exported
}

/** @throws APPROACH_INVALID when the strategy refuses the approach's parameters. */
export function checkParameters(strategy: Strategy, approach: ApproachPlan): void {
  try {
    strategy.validate?.(approach.parameters)
  } catch (error) {
    throw new Kosa8Error('APPROACH_INVALID', `approach ${approach.label}: ${messageOf(error)}`, {
      hint: 'correct its parameters in kosa8.yaml', cause: error,
    })
  }
}

async function importBuiltin(name: string): Promise<unknown> {
  const module = (await import(new URL(`../../strategies/${name}.js`, import.meta.url).href)) as { default?: unknown }
  return module.default
}

function isStrategy(value: unknown): value is Strategy {
  return typeof value === 'object' && value !== null && typeof (value as Strategy).run === 'function'
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
