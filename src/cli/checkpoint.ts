/** `kosa8 checkpoint NAME`, `checkpoint ls NAME`, `checkpoint rm NAME CHECKPOINT`. */
import type { Command } from 'commander'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { layOutTable } from '../report/table.js'
import { makeVisible } from '../report/visible.js'
import type { CommandTools } from './host.js'
import { defineAction, defineVerb, type Cli, type CommonOptions } from './verb.js'

interface CheckpointOptions extends CommonOptions {
  label?: string
}

/** Adds the verbs. */
export function addCheckpoint(cli: Cli, program: Command): void {
  const checkpoint = defineAction<CheckpointOptions>(cli, program.command('checkpoint').argument('[name]'), {
    summary: 'Save a running sandbox: memory, processes and disks. It goes on running.',
    examples: ['kosa8 checkpoint db --label "before migration"', 'kosa8 checkpoint ls db'],
  }, take).option('--label <text>', 'why it is taken')
  defineVerb(cli, checkpoint, 'ls <name>', {
    summary: 'List the checkpoints of a sandbox, oldest first.', examples: ['kosa8 checkpoint ls db'],
  }, list)
  defineVerb(cli, checkpoint, 'rm <name> <checkpoint>', {
    summary: 'Remove a checkpoint.', examples: ['kosa8 checkpoint rm db db-ckpt-1'],
  }, remove)
}

async function take({ client, output }: CommandTools, [name]: string[], options: CheckpointOptions): Promise<number> {
  if (name === undefined) throw new Kosa8Error('USAGE', 'name the sandbox', { hint: 'kosa8 checkpoint NAME' })
  const taken = await client.sandbox(name).checkpoint(options.label === undefined ? {} : { label: options.label })
  if (options.json === true) output.printJson(taken)
  else output.print(`took ${taken.id}${taken.label === null ? '' : ` "${makeVisible(taken.label)}"`} (paused ${Math.round(taken.pauseMs)} ms)`)
  return 0
}

async function list({ client, host, output }: CommandTools, [name]: string[], options: CommonOptions): Promise<number> {
  const checkpoints = await client.sandbox(name as string).checkpoints()
  if (options.json === true) {
    output.printJson(checkpoints)
    return 0
  }
  const head = ['checkpoint', 'taken', 'size', 'label']
  const rows = checkpoints.map(({ id, createdAt, sizeBytes, label }) =>
    [id, createdAt.slice(0, 19).replace('T', ' '), `${Math.round(sizeBytes / 1024 ** 2)} MiB`, makeVisible(label ?? '')])
  const cells = [head, ...rows].map((row) => row.map((text) => ({ text })))
  const layout = { columns: host.terminalSize().columns, colour: false, right: [2] }
  output.print(checkpoints.length === 0 ? 'no checkpoints yet' : layOutTable(cells, layout).join('\n'))
  return 0
}

async function remove({ client, output }: CommandTools, [name, id]: string[], options: CommonOptions): Promise<number> {
  await client.sandbox(name as string).deleteCheckpoint(id as string)
  if (options.json === true) output.printJson({ ok: true, id })
  else output.print(`removed ${id}`)
  return 0
}
