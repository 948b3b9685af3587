/** `kosa8 rm NAME`. */
import type { Command } from 'commander'
import type { CommandTools } from './host.js'
import { defineVerb, type Cli, type CommonOptions } from './verb.js'

/** Adds the verb. */
export function addRm(cli: Cli, program: Command): void {
  defineVerb(cli, program, 'rm <name>', {
    summary: 'Destroy a sandbox and its checkpoints.', examples: ['kosa8 rm db'],
  }, remove)
}

async function remove({ client, output }: CommandTools, [name]: string[], options: CommonOptions): Promise<number> {
  await client.deleteSandbox(name as string)
  if (options.json === true) output.printJson({ ok: true, name })
  else output.print(`removed ${name}`)
  return 0
}
