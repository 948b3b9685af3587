/** `kosa8 apply RUN APPROACH [--branch NAME]`. */
import type { Command } from 'commander'
import type { CommandTools } from './host.js'
import { resolveRun } from './run-argument.js'
import { defineVerb, type Cli, type CommonOptions } from './verb.js'

interface ApplyOptions extends CommonOptions {
  branch?: string
}

/** Adds the verb. */
export function addApply(cli: Cli, program: Command): void {
  defineVerb<ApplyOptions>(cli, program, 'apply <run> <approach>', {
    summary: 'Bring the result of one approach into a branch of the repository; the working tree is left alone.',
    examples: ['kosa8 apply latest quick-fix --branch fix-rounding'],
  }, apply)
    .option('--branch <name>', 'branch to make')
}

async function apply({ client, output }: CommandTools, [run, approach]: string[], options: ApplyOptions): Promise<number> {
  const id = await resolveRun(client, run as string)
  const applied = await client.runs.apply(id, {
    approach: approach as string, ...(options.branch === undefined ? {} : { branch: options.branch }),
  })
  if (options.json === true) output.printJson(applied)
  else output.print(`${applied.branch} is at ${applied.commit.slice(0, 12)}: ${applied.files} changed ${applied.files === 1 ? 'file' : 'files'}`)
  return 0
}
