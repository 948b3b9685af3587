/**
 * The command line as a whole: which verbs there are, and how any failure ends.
 *
 * Owns: {@link runCli}, which never throws and returns the exit status. Called by `main.ts` and by tests.
 */
import { Command, CommanderError } from 'commander'
import { Kosa8Error, serialiseError, toKosa8Error } from '../errors/kosa8-error.js'
import { VERSION } from '../protocol/status.js'
import { addApply } from './apply.js'
import { addApprove } from './approve.js'
import { addCheckpoint } from './checkpoint.js'
import { addComplete } from './complete.js'
import { addCompletion } from './completion.js'
import { addCp } from './cp.js'
import { addCreate } from './create.js'
import { addDaemon } from './daemon.js'
import { addDiff } from './diff.js'
import { addDoctor } from './doctor.js'
import { addEgress } from './egress.js'
import { addExec } from './exec.js'
import { addFork } from './fork.js'
import { Output, type CliHost } from './host.js'
import { addImage } from './image.js'
import { addLs } from './ls.js'
import { addMcp } from './mcp.js'
import { addReport } from './report.js'
import { addRewind } from './rewind.js'
import { addRm } from './rm.js'
import { addRuns } from './runs.js'
import { addShell } from './shell.js'
import type { Cli } from './verb.js'

/** Every verb, in the order help lists them. */
const VERBS = [
  addFork, addRuns, addReport, addDiff, addApply, addCreate, addLs, addExec, addShell, addCp, addRm, addEgress, addCheckpoint,
  addRewind, addApprove, addImage, addDaemon, addDoctor, addCompletion, addComplete, addMcp,
]

/** Runs one command line (without node and script) and returns its exit status. */
export async function runCli(argv: string[], host: CliHost): Promise<number> {
  const cli: Cli = { host, status: 0 }
  const program = buildProgram(cli)
  try {
    await program.parseAsync(withoutHelpOfUnknown(program, argv), { from: 'user' })
    return cli.status
  } catch (thrown) {
    if (thrown instanceof CommanderError && thrown.exitCode === 0) return 0
    const error = thrown instanceof CommanderError ? usageError(thrown, verbIn(program, argv)) : toKosa8Error(thrown)
    new Output(host).error(serialiseError(error), asksForJson(argv))
    return error.exitStatus
  }
}

function buildProgram(cli: Cli): Command {
  const program = new Command('kosa8')
    .description('Virtual machines for AI coding agents that can be saved, undone and forked while they run.')
    .version(VERSION)
    .enablePositionalOptions()
    .exitOverride()
    .configureOutput({
      writeOut: (text) => cli.host.stdout.write(text),
      // Commander prints help here when a verb is missing; its errors are printed by runCli.
      writeErr: (text) => cli.host.stderr.write(text),
      outputError: () => undefined,
      getOutHelpWidth: () => cli.host.terminalSize().columns,
    })
    .addHelpText('after', '\nExample:\n  $ kosa8 fork --approaches quick-fix,rewrite --test "npm test"')
  for (const add of VERBS) add(cli, program)
  return program
}

/**
 * `help VERB` as `VERB --help`, and neither where there is no such verb: commander answers both with the help of what
 * is above it, as if all were well.
 */
function withoutHelpOfUnknown(program: Command, argv: string[]): string[] {
  const line = argv[0] === 'help' && argv.length > 1 ? [...argv.slice(1), '--help'] : argv
  const isKnown = line[0] === undefined || line[0].startsWith('-') || line[0] === 'help' || verbIn(program, line).length > 0
  return isKnown ? line : line.filter((word) => word !== '--help' && word !== '-h')
}

/** The verb of a command line, e.g. `runs show`; as far as there is one. */
function verbIn(program: Command, argv: string[]): string[] {
  const words: string[] = []
  let command: Command | undefined = program
  for (const word of argv) {
    command = command.commands.find((each) => each.name() === word)
    if (command === undefined) break
    words.push(word)
  }
  return words
}

function usageError(thrown: CommanderError, verb: string[]): Kosa8Error {
  const help = `see \`${['kosa8', ...verb].join(' ')} --help\``
  if (thrown.code === 'commander.help') return new Kosa8Error('USAGE', 'a command is missing', { hint: help })
  const [message, suggestion] = thrown.message.replace(/^error: /, '').split('\n')
  const isOfCommand = thrown.code === 'commander.unknownOption' && verb[0] === 'exec'
  const hint = suggestion?.replace(/[()]/g, '')
    ?? (isOfCommand ? 'flags of the command itself come after --, as in: kosa8 exec NAME -- ls -la' : help)
  return new Kosa8Error('USAGE', message as string, { hint })
}

/** Asked for anywhere before `--`, also where the rest could not be understood. */
function asksForJson(argv: string[]): boolean {
  const end = argv.indexOf('--')
  return (end < 0 ? argv : argv.slice(0, end)).includes('--json')
}
