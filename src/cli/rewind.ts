/** `kosa8 rewind NAME [--to ID|LABEL] [-y] [--approval ID]`. */
import type { Command } from 'commander'
import { makeVisible } from '../report/visible.js'
import type { CheckpointRecord } from '../sdk/checkpoint-store.js'
import { confirm } from './ask.js'
import type { CommandTools } from './host.js'
import { tellAge } from './relative-time.js'
import { APPROVAL_HELP, approvalOf } from './options.js'
import { defineVerb, type Cli, type CommonOptions } from './verb.js'

interface RewindOptions extends CommonOptions {
  to?: string
  yes?: boolean
  approval?: string
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
    .option('--approval <id>', APPROVAL_HELP)
}

async function rewind(tools: CommandTools, [name]: string[], options: RewindOptions): Promise<number> {
  const { client, output } = tools
  const target = await client.checkpoints.find(name as string, options.to)
  if (options.yes !== true && !await confirmRewind(tools, target, options.json === true)) {
    output.note('nothing was changed')
    return NOT_WANTED
  }
  const result = await client.rewind(name as string, { to: target.id, ...approvalOf(options) })
  if (options.json === true) {
    output.printJson(result)
    return 0
  }
  output.print(`${name} is back at ${result.checkpoint.id} (${result.restore_ms}ms)`)
  if (result.dropped.length > 0) output.print(`  dropped ${result.dropped.length} later checkpoint(s)`)
  else output.print(`  processes resumed from ${tellMoment(target)}`)
  await tellKept(tools, target)
  return 0
}

/** What others took since then is theirs: runs start from such checkpoints, programs keep lists of their own. */
async function tellKept({ client, output }: CommandTools, { sandbox, created_at }: CheckpointRecord): Promise<void> {
  const kept = (await client.checkpoints.listUnrecorded(sandbox)).filter(({ createdAt }) => createdAt > created_at)
  if (kept.length > 0) output.note(`later ones that are not in this list were kept: ${kept.map(({ id }) => id).join(', ')}`)
}

/** Asks on standard output, or beside it where that is for JSON. */
async function confirmRewind({ host }: CommandTools, target: CheckpointRecord, asJson: boolean): Promise<boolean> {
  const why = target.label === null ? '' : ` — ${makeVisible(target.label)}`
  const question = `Rewind ${target.sandbox} to ${target.id}${why}?\nEverything since ${tellMoment(target)} will be lost.`
  return confirm(host, asJson ? host.stderr : host.stdout, question)
}

function tellMoment({ created_at }: CheckpointRecord): string {
  const age = tellAge(created_at, Date.now())
  return age === 'just now' ? 'a moment ago' : age
}
