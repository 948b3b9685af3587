/** `kosa8 rm NAME… [--approval ID]`. */
import type { Command } from 'commander'
import { Kosa8Error, serialiseError, toKosa8Error } from '../errors/kosa8-error.js'
import { makeVisible } from '../report/visible.js'
import type { CommandTools } from './host.js'
import { APPROVAL_HELP, approvalOf } from './options.js'
import { defineVerb, type Cli, type CommonOptions } from './verb.js'

interface RmOptions extends CommonOptions {
  approval?: string
}

/** A sandbox that is still there, and why. */
interface Failure {
  name: string
  error: Kosa8Error
}

/** Adds the verb. */
export function addRm(cli: Cli, program: Command): void {
  defineVerb<RmOptions>(cli, program, 'rm <name...>', {
    summary: 'Destroy sandboxes and their checkpoints. One that cannot be removed does not keep the others.',
    examples: ['kosa8 rm db', 'kosa8 rm db web'],
  }, (tools, names, options) => removeAll(tools, [...new Set(names)], options))
    .option('--approval <id>', APPROVAL_HELP)
}

async function removeAll(tools: CommandTools, names: string[], options: RmOptions): Promise<number> {
  const { client, output } = tools
  const [only] = names
  if (names.length === 1) return removeOne(tools, only as string, options)
  if (options.approval !== undefined) {
    throw new Kosa8Error('USAGE', '--approval is for one sandbox, and several are named', { hint: 'an approval is for one act: remove that sandbox by itself' })
  }
  await client.connect() // without a daemon there is one thing to say, not one for each name
  const removed: string[] = []
  const failed: Failure[] = []
  for (const name of names) {
    const error = await client.deleteSandbox(name).then(() => null, toKosa8Error)
    if (error === null) removed.push(name)
    else failed.push({ name, error })
    if (options.json !== true) tellOutcome(tools, name, error)
  }
  if (options.json === true) {
    output.printJson({ ok: failed.length === 0, removed, failed: failed.map(({ name, error }) => ({ name, error: serialiseError(error) })) })
  }
  return Math.max(0, ...failed.map(({ error }) => error.exitStatus))
}

async function removeOne({ client, output }: CommandTools, name: string, options: RmOptions): Promise<number> {
  await client.deleteSandbox(name, approvalOf(options))
  if (options.json === true) output.printJson({ ok: true, name })
  else output.print(`removed ${name}`)
  return 0
}

function tellOutcome({ output }: CommandTools, name: string, error: Kosa8Error | null): void {
  if (error === null) output.print(`removed ${name}`)
  else output.error({ ...serialiseError(error), message: `removing ${makeVisible(name)} failed: ${error.message}` }, false)
}
