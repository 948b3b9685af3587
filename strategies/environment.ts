/**
 * What commands of a strategy find in their environment.
 *
 * Owns: who they are (approach, repeat, parameters) and harmless values for everything that would wait for a
 * person: pagers, editors, password prompts.
 */
import type { StrategyContext } from '../src/model/strategy.js'

/** Nobody is there to answer. */
const UNATTENDED = {
  CI: '1',
  PAGER: 'cat',
  GIT_PAGER: 'cat',
  MANPAGER: 'cat',
  EDITOR: 'true',
  VISUAL: 'true',
  GIT_EDITOR: 'true',
  GIT_SEQUENCE_EDITOR: 'true',
  GIT_TERMINAL_PROMPT: '0',
  GIT_ASKPASS: 'true',
  SSH_ASKPASS: 'true',
  DEBIAN_FRONTEND: 'noninteractive',
} as const

/** Environment of a command; parameters named in `hidden` are the strategy's own and left out. */
export function environmentOf(context: StrategyContext, hidden: ReadonlySet<string>): Record<string, string> {
  const environment: Record<string, string> = {
    ...UNATTENDED,
    KOSA8_APPROACH: context.approach,
    KOSA8_REPEAT: String(context.repeat),
  }
  for (const [name, value] of Object.entries(context.parameters)) {
    if (!hidden.has(name)) environment[variableOf(name)] = textOf(value)
  }
  return environment
}

/** `batch-size` becomes KOSA8_PARAM_BATCH_SIZE. */
function variableOf(name: string): string {
  return `KOSA8_PARAM_${name.toUpperCase().replace(/[^A-Z0-9]/g, '_')}`
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value) ?? ''
}
