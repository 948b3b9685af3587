/** `kosa8 exec NAME -- CMD…`. */
import { constants } from 'node:os'
import { pipeline } from 'node:stream/promises'
import type { Command } from 'commander'
import type { ExecExit } from '../protocol/sandboxes.js'
import type { SandboxProcess } from '../sdk/exec.js'
import type { CliHost, CommandTools } from './host.js'
import { repeatedOption } from './options.js'
import { printStream } from './stream-output.js'
import { defineVerb, type Cli, type CommonOptions } from './verb.js'
import { Kosa8Error } from '../errors/kosa8-error.js'

interface ExecOptions extends CommonOptions {
  cwd?: string
  user?: string
  env?: string[]
}

/** Adds the verb. */
export function addExec(cli: Cli, program: Command): void {
  defineVerb<ExecOptions>(cli, program, 'exec <name> <command...>', {
    summary: 'Run a command in a sandbox, without a shell, and end with its status.',
    examples: ['kosa8 exec db -- uname -a', 'kosa8 exec web --cwd /workspace -- npm test'],
  }, exec)
    .option('--cwd <dir>', 'folder in the sandbox')
    .option('--user <name>', 'user in the sandbox (default: root)')
    .option('--env <name=value>', 'environment variable; may be given several times', repeatedOption)
}

async function exec(tools: CommandTools, [name, ...argv]: string[], options: ExecOptions): Promise<number> {
  const command = {
    argv,
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    ...(options.user === undefined ? {} : { user: options.user }),
    ...(options.env === undefined ? {} : { env: environmentOf(options.env) }),
  }
  const sandbox = tools.client.sandbox(name as string)
  if (options.json === true) {
    const result = await sandbox.exec(argv, command)
    tools.output.printJson(result)
    return statusOf(result)
  }
  // A terminal would be read from for ever; what is piped in is passed on.
  const process = await sandbox.spawn({ ...command, stdin: !tools.host.terminals.stdin })
  const stopListening = passSignals(tools.host, process)
  try {
    if (process.stdin !== null) pipeline(tools.host.stdin, process.stdin).catch(() => undefined)
    const [exit] = await Promise.all([
      process.exited, printStream(tools.host, process.stdout), pipeline(process.stderr, tools.host.stderr, { end: false }),
    ])
    return statusOf(exit)
  } finally {
    stopListening()
  }
}

/** The first signal goes to the command; the second gives it up. */
function passSignals(host: CliHost, process: SandboxProcess): () => void {
  let signals = 0
  return host.onSignal((signal) => {
    signals += 1
    if (signals === 1) process.signal(constants.signals[signal])
    else process.close()
  })
}

function statusOf({ code, signal }: ExecExit): number {
  return code ?? 128 + (signal ?? 0)
}

function environmentOf(pairs: string[]): Record<string, string> {
  return Object.fromEntries(pairs.map((pair) => {
    const at = pair.indexOf('=')
    if (at < 1) throw new Kosa8Error('USAGE', `--env ${pair}: use name=value`)
    return [pair.slice(0, at), pair.slice(at + 1)]
  }))
}
