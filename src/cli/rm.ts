/** `kosa8 rm NAME [--approval ID]`. */
import type { Command } from 'commander'
import type { CommandTools } from './host.js'
import { APPROVAL_HELP, approvalOf } from './options.js'
import { defineVerb, type Cli, type CommonOptions } from './verb.js'

interface RmOptions extends CommonOptions {
  approval?: string
}

/** Adds the verb. */
export function addRm(cli: Cli, program: Command): void {
  defineVerb<RmOptions>(cli, program, 'rm <name>', {
    summary: 'Destroy a sandbox and its checkpoints.', examples: ['kosa8 rm db'],
  }, remove).option('--approval <id>', APPROVAL_HELP)
}

async function remove({ client, output }: CommandTools, [name]: string[], options: RmOptions): Promise<number> {
  await client.deleteSandbox(name as string, approvalOf(options))
  if (options.json === true) output.printJson({ ok: true, name })
  else output.print(`removed ${name}`)
  return 0
}
