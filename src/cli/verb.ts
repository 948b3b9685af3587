/**
 * How a verb is declared: name, help, example, `--json`, and the one place its failure is turned into a status.
 *
 * A new verb is a file that calls {@link defineVerb}, and a line in `program.ts`.
 */
import type { Command } from 'commander'
import type { CliHost, CommandTools } from './host.js'
import { createTools } from './host.js'

/** Where verbs hang and what they leave behind. */
export interface Cli {
  host: CliHost
  /** Status of the command that ran. */
  status: number
}

/** Help of a verb. */
export interface VerbHelp {
  summary: string
  /** Command lines without the leading `$`. */
  examples: string[]
}

/** Flags every verb has. */
export interface CommonOptions {
  json?: boolean
}

/** A verb's work: typed options in, exit status out. */
export type VerbAction<Options> = (tools: CommandTools, args: string[], options: Options & CommonOptions) => Promise<number>

/** Adds a verb below `parent`. `usage` as commander has it, e.g. `rm <name>`. */
export function defineVerb<Options>(
  cli: Cli, parent: Command, usage: string, help: VerbHelp, action: VerbAction<Options>,
): Command {
  return defineAction(cli, parent.command(usage), help, action)
}

/** Makes an existing command a verb, for those that have verbs below them too. */
export function defineAction<Options>(cli: Cli, command: Command, help: VerbHelp, action: VerbAction<Options>): Command {
  return command
    .description(help.summary)
    .option('--json', 'print JSON')
    .addHelpText('after', `\nExample:\n${help.examples.map((line) => `  $ ${line}`).join('\n')}`)
    .action(async () => {
      const args = command.processedArgs.flat().filter((value): value is string => typeof value === 'string')
      cli.status = await action(createTools(cli.host), args, command.opts())
    })
}
