/**
 * `kosa8 complete -- WORDS…`: what may stand in place of the last word, for the scripts of `completion`.
 *
 * Owns: reading an unfinished command line by the verbs there are. Does not own where names come from (`candidates.ts`).
 * Never fails, never starts a daemon, and is over soon: somebody has pressed a key.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { Command, Option } from 'commander'
import { makeVisible } from '../report/visible.js'
import { bare, candidatesOfArgument, candidatesOfOption, type Asked, type Candidate } from './candidates.js'
import { createTools } from './host.js'
import type { Cli } from './verb.js'

/** After so long nothing is offered, milliseconds. */
const PATIENCE_MS = 2_000
/** More than anybody reads. */
const CANDIDATES_MAX = 500

/** Adds the verb, which help does not show. */
export function addComplete(cli: Cli, program: Command): void {
  program.command('complete', { hidden: true }).argument('[words...]').action(async (words: string[]) => {
    const { client, output } = createTools(cli.host, false)
    const asked = { ...readLine(program, words.slice(0, -1)), current: words.at(-1) ?? '', client, cwd: cli.host.cwd }
    const found = await Promise.race([offer(asked).catch(() => []), delay(PATIENCE_MS, [], { ref: false })])
    const fitting = found.filter(({ value }) => value.startsWith(asked.current) && makeVisible(value) === value)
    output.print(fitting.slice(0, CANDIDATES_MAX).map(({ value, about }) => (about === '' ? value : `${value}\t${makeVisible(about)}`)).join('\n'))
  })
}

/** What has been typed before the cursor. */
interface Line {
  command: Command
  /** Names of the verb, e.g. "checkpoint ls". */
  verb: string
  args: string[]
  /** Values of options by their long flag. */
  values: Record<string, string>
  /** The option whose value comes next. */
  pending: Option | null
  /** `--` was typed: no flags any more. */
  isOver: boolean
}

function readLine(program: Command, words: string[]): Line {
  const line: Line = { command: program, verb: '', args: [], values: {}, pending: null, isOver: false }
  for (const word of words) takeWord(line, word)
  return line
}

function takeWord(line: Line, word: string): void {
  const sub = line.args.length === 0 && !line.isOver ? line.command.commands.find((each) => each.name() === word) : undefined
  if (line.pending !== null) {
    line.values[line.pending.long ?? ''] = word
    line.pending = null
  } else if (line.isOver) line.args.push(word)
  else if (word === '--') line.isOver = true
  else if (word.startsWith('-')) line.pending = line.command.options.find((each) => (each.long === word || each.short === word) && each.required) ?? null
  else if (sub === undefined) line.args.push(word)
  else {
    line.command = sub
    line.verb = line.verb === '' ? word : `${line.verb} ${word}`
  }
}

async function offer(asked: Line & Asked): Promise<Candidate[]> {
  const { command, pending, current, isOver, args } = asked
  if (asked.verb === 'exec' && args.length > 0) return [] // a command of the sandbox, with flags of its own
  if (pending !== null) return pending.argChoices?.map(bare) ?? await candidatesOfOption(pending.long ?? '', asked)
  if (current.startsWith('-') && !isOver) return flagsOf(command)
  const verbs = args.length === 0 && !isOver ? verbsOf(command) : []
  return [...verbs, ...await candidatesOfArgument(asked)]
}

function verbsOf(command: Command): Candidate[] {
  return command.createHelp().visibleCommands(command).map((each) => ({ value: each.name(), about: each.description() }))
}

function flagsOf(command: Command): Candidate[] {
  const all = command.createHelp().visibleOptions(command)
  return all.flatMap(({ long, description }) => (long == null ? [] : [{ value: long, about: description }]))
}
