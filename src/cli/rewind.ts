/** `kosa8 rewind NAME [--to ID|LABEL] [-y]`. */
import { createInterface } from 'node:readline'
import type { Command } from 'commander'
import { makeVisible } from '../report/visible.js'
import type { CheckpointRecord } from '../sdk/checkpoint-store.js'
import type { CommandTools } from './host.js'
import { tellAge } from './relative-time.js'
import { defineVerb, type Cli, type CommonOptions } from './verb.js'

interface RewindOptions extends CommonOptions {
  to?: string
  yes?: boolean
}

/** The user answered no. */
const NOT_WANTED = 1

/** Adds the verb. */
export function addRewind(cli: Cli, program: Command): void {
  defineVerb<RewindOptions>(cli, program, 'rewind <name>', {
    summary: 'Put a sandbox back to a checkpoint, under the same name: memory, processes and files. Its state now is lost.',
    examples: ['kosa8 rewind web', 'kosa8 rewind web --to "before migration"', 'kosa8 rewind web -y --json'],
  }, rewind)
    .option('--to <id|label>', 'checkpoint to go to (default: the most recent)')
    .option('-y, --yes', 'do not ask')
}

async function rewind(tools: CommandTools, [name]: string[], options: RewindOptions): Promise<number> {
  const { client, output } = tools
  const target = await client.checkpoints.find(name as string, options.to)
  if (options.yes !== true && !await confirm(tools, target, options.json === true)) {
    output.note('nothing was changed')
    return NOT_WANTED
  }
  const result = await client.rewind(name as string, { to: target.id })
  if (options.json === true) {
    output.printJson(result)
    return 0
  }
  output.print(`${name} is back at ${result.checkpoint.id} (${result.restore_ms}ms)`)
  if (result.dropped.length > 0) output.print(`  dropped ${result.dropped.length} later checkpoint(s)`)
  else output.print(`  processes resumed from ${tellMoment(target)}`)
  return 0
}

/** Asks on standard output, or beside it where that is for JSON. Anything but yes is no, so is the end of input. */
async function confirm({ host }: CommandTools, target: CheckpointRecord, asJson: boolean): Promise<boolean> {
  const out = asJson ? host.stderr : host.stdout
  const why = target.label === null ? '' : ` — ${makeVisible(target.label)}`
  out.write(`Rewind ${target.sandbox} to ${target.id}${why}?\nEverything since ${tellMoment(target)} will be lost. [y/N] `)
  const lines = createInterface({ input: host.stdin })
  try {
    for await (const line of lines) return /^y(es)?$/i.test(line.trim())
    return false
  } finally {
    lines.close()
    if (!host.terminals.stdin) out.write('\n')
  }
}

function tellMoment({ created_at }: CheckpointRecord): string {
  const age = tellAge(created_at, Date.now())
  return age === 'just now' ? 'a moment ago' : age
}
