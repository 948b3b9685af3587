/** `kosa8 exec NAME -- CMD…`. */
import { constants } from 'node:os'
import { pipeline } from 'node:stream/promises'
import type { Command } from 'commander'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { ExecExit, ExecRequest } from '../protocol/sandboxes.js'
import type { SandboxProcess } from '../sdk/exec.js'
import { exitCodeOf } from '../sdk/sandbox.js'
import type { CliHost, CommandTools } from './host.js'
import { repeatedOption } from './options.js'
import { copyToOutput, isClosedOutput } from './stream-output.js'
import { joinTerminal } from './terminal.js'
import { defineVerb, type Cli, type CommonOptions } from './verb.js'

interface ExecOptions extends CommonOptions {
  interactive?: boolean
  tty?: boolean
  cwd?: string
  user?: string
  env?: string[]
}

/** Adds the verb. */
export function addExec(cli: Cli, program: Command): void {
  defineVerb<ExecOptions>(cli, program, 'exec <name> <command...>', {
    summary: 'Run a command in a sandbox, without a shell, and end with its status.',
    examples: ['kosa8 exec db -- uname -a', 'kosa8 exec -w /workspace -e CI=1 web -- npm test', 'kosa8 exec -it db -- psql'],
  }, exec)
    .option('-i, --interactive', 'pass standard input on, also from a terminal (what is piped in is passed on anyway)')
    .option('-t, --tty', 'give the command a terminal')
    .option('-w, --cwd <dir>', 'folder in the sandbox')
    .option('-u, --user <name>', 'user in the sandbox (default: root)')
    .option('-e, --env <name=value>', 'environment variable; may be given several times', repeatedOption)
}

async function exec(tools: CommandTools, [name, ...argv]: string[], options: ExecOptions): Promise<number> {
  const { host, output } = tools
  const sandbox = tools.client.sandbox(name as string)
  const command = {
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    ...(options.user === undefined ? {} : { user: options.user }),
    ...(options.env === undefined ? {} : { env: environmentOf(options.env) }),
  }
  if (options.json === true) {
    if (options.interactive === true || options.tty === true) throw new Kosa8Error('USAGE', '--json cannot be used with -i or -t')
    const result = await sandbox.exec(argv, command)
    output.printJson(result)
    return result.exitCode
  }
  // Without -i a terminal is not read: the command may never end for it. What is piped in is passed on.
  const stdin = options.interactive === true || !host.terminals.stdin
  const request: ExecRequest = { ...command, argv, stdin, ...(options.tty === true ? { pty: host.terminalSize() } : {}) }
  const process = await sandbox.spawn(request)
  const keysGoToCommand = options.tty === true && host.terminals.stdin && stdin
  return exitCodeOf(keysGoToCommand ? await joinTerminal(host, process) : await joinStreams(host, process))
}

async function joinStreams(host: CliHost, process: SandboxProcess): Promise<ExecExit> {
  const stopListening = passSignals(host, process)
  try {
    if (process.stdin !== null) pipeline(host.stdin, process.stdin).catch(() => undefined)
    const [exit] = await Promise.all([
      process.exited, copyToOutput(host, process.stdout), pipeline(process.stderr, host.stderr, { end: false }),
    ])
    return exit
  } catch (error) {
    if (!isClosedOutput(error)) throw error
    // Nobody reads on, so the command would wait for ever: it ends as a local one does.
    process.close()
    return { code: null, signal: constants.signals.SIGPIPE }
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

function environmentOf(pairs: string[]): Record<string, string> {
  return Object.fromEntries(pairs.map((pair) => {
    const at = pair.indexOf('=')
    if (at < 1) throw new Kosa8Error('USAGE', `--env ${pair}: use name=value`)
    return [pair.slice(0, at), pair.slice(at + 1)]
  }))
}
