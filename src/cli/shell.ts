/** `kosa8 shell NAME`. */
import type { Command } from 'commander'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { exitCodeOf } from '../sdk/sandbox.js'
import type { CommandTools } from './host.js'
import { joinTerminal } from './terminal.js'
import { defineVerb, type Cli, type CommonOptions } from './verb.js'

interface ShellOptions extends CommonOptions {
  user?: string
}

/** The best shell the image has. */
const SHELL_SCRIPT = 'for shell in bash zsh; do command -v $shell >/dev/null && exec $shell -l; done; exec sh -l'

/** Adds the verb. */
export function addShell(cli: Cli, program: Command): void {
  defineVerb<ShellOptions>(cli, program, 'shell <name>', {
    summary: 'Open a shell in a sandbox, in this terminal; it ends with the status of the shell.',
    examples: ['kosa8 shell web', 'kosa8 shell web -u postgres'],
  }, shell)
    .option('-u, --user <name>', 'user in the sandbox (default: root)')
}

async function shell({ client, host, output }: CommandTools, [name]: string[], options: ShellOptions): Promise<number> {
  if (!host.terminals.stdin || !host.terminals.stdout) {
    throw new Kosa8Error('USAGE', 'a shell needs a terminal', { hint: `run a command instead: kosa8 exec ${name} -- CMD` })
  }
  const process = await client.sandbox(name as string).spawn({
    argv: ['sh', '-c', SHELL_SCRIPT], pty: host.terminalSize(), stdin: true,
    ...(options.user === undefined ? {} : { user: options.user }),
  })
  const exit = await joinTerminal(host, process)
  if (options.json === true) output.printJson(exit)
  return exitCodeOf(exit)
}
