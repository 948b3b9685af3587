/** `kosa8 checkpoint NAME`, `checkpoint ls NAME`, `checkpoint rm NAME CHECKPOINT`. */
import type { Command } from 'commander'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { displayWidth, fitWidth } from '../report/table.js'
import { makeVisible } from '../report/visible.js'
import { MAX_CHECKPOINTS_PER_SANDBOX, type CheckpointRecord } from '../sdk/checkpoint-store.js'
import type { CommandTools } from './host.js'
import { APPROVAL_HELP, approvalOf } from './options.js'
import { tellAge } from './relative-time.js'
import { defineAction, defineVerb, type Cli, type CommonOptions } from './verb.js'

interface CheckpointOptions extends CommonOptions {
  label?: string
}

interface RemoveOptions extends CommonOptions {
  approval?: string
}

const COLUMN_GAP = '   '

/** Adds the verbs. */
export function addCheckpoint(cli: Cli, program: Command): void {
  const checkpoint = defineAction<CheckpointOptions>(cli, program.command('checkpoint').argument('[name]'), {
    summary: 'Save a running sandbox: memory, processes and disks. It goes on running.',
    examples: ['kosa8 checkpoint web --label "before migration"', 'kosa8 checkpoint ls web'],
  }, take).option('--label <text>', 'why it is taken')
  defineVerb(cli, checkpoint, 'ls <name>', {
    summary: 'List the checkpoints of a sandbox, oldest first.', examples: ['kosa8 checkpoint ls web'],
  }, list)
  defineVerb<RemoveOptions>(cli, checkpoint, 'rm <name> <checkpoint>', {
    summary: 'Remove a checkpoint, given by id or label.', examples: ['kosa8 checkpoint rm web web-ckpt-1'],
  }, remove).option('--approval <id>', APPROVAL_HELP)
}

async function take({ client, output }: CommandTools, [name]: string[], options: CheckpointOptions): Promise<number> {
  if (name === undefined) throw new Kosa8Error('USAGE', 'name the sandbox', { hint: 'kosa8 checkpoint NAME' })
  const taken = await client.checkpoint(name, options.label === undefined ? {} : { label: options.label })
  if (options.json === true) {
    output.printJson(taken)
    return 0
  }
  const { checkpoint: { id, label }, evicted, save_ms } = taken
  output.print(`checkpoint ${id}${label === null ? '' : ` (${makeVisible(label)})`} saved in ${save_ms}ms`)
  output.print(`  rewind with \`kosa8 rewind ${name}\``)
  if (evicted.length > 0) output.print(`  dropped ${evicted.join(', ')}: a sandbox keeps ${MAX_CHECKPOINTS_PER_SANDBOX}`)
  return 0
}

async function list({ client, output }: CommandTools, [name]: string[], options: CommonOptions): Promise<number> {
  const checkpoints = await client.listCheckpoints(name as string)
  if (options.json === true) {
    output.printJson(checkpoints)
    return 0
  }
  if (checkpoints.length === 0) output.print('no checkpoints yet')
  else output.print([...layOut(checkpoints, output.columns), '', `* is where \`kosa8 rewind ${name}\` goes`].join('\n'))
  const others = await client.checkpoints.listUnrecorded(name as string)
  for (const { id, label } of others) {
    output.note(`not in this list: ${id}${label === null ? '' : ` (${makeVisible(label)})`}; go there with \`kosa8 rewind ${name} --to ${id}\``)
  }
  return 0
}

function layOut(checkpoints: CheckpointRecord[], columns: number): string[] {
  const now = Date.now()
  // The star takes one blank's place: a list of more than one is a column wider than its longest id, as in the guide.
  const rows = checkpoints.map(({ id, created_at, by, label }, index) =>
    [index === checkpoints.length - 1 ? `*${id}` : ` ${id} `, tellAge(created_at, now), makeVisible(by), makeVisible(label ?? '')])
  const table = [['CHECKPOINT', 'WHEN', 'TAKEN', 'WHY'], ...rows]
  const widths = [0, 1, 2].map((column) => Math.max(...table.map((row) => displayWidth(row[column] as string))))
  return table.map((row) => {
    const padded = row.map((text, column) => text + ' '.repeat(Math.max(0, (widths[column] ?? 0) - displayWidth(text))))
    return fitWidth(padded.join(COLUMN_GAP).trimEnd(), columns)
  })
}

async function remove({ client, output }: CommandTools, [name, selector]: string[], options: RemoveOptions): Promise<number> {
  const { id } = await client.sandbox(name as string).deleteCheckpoint(selector as string, approvalOf(options))
  if (options.json === true) output.printJson({ ok: true, id })
  else output.print(`removed ${id}`)
  return 0
}
