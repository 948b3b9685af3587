/** `kosa8 doctor`: what this machine can do, each problem with its cure. */
import type { Command } from 'commander'
import { paint } from '../report/table.js'
import type { CommandTools } from './host.js'
import { checkDaemon } from './doctor/daemon-checks.js'
import type { Check, CheckState } from './doctor/check.js'
import { checkHost } from './doctor/host-checks.js'
import { defineVerb, type Cli, type CommonOptions } from './verb.js'

/** Something is in the way. */
const HAS_PROBLEM = 3

const MARKS: Record<CheckState, { text: string; colour: number }> = {
  ok: { text: 'ok', colour: 32 }, warning: { text: 'warning', colour: 33 }, problem: { text: 'problem', colour: 31 },
}

/** Adds the verb. */
export function addDoctor(cli: Cli, program: Command): void {
  defineVerb(cli, program, 'doctor', {
    summary: 'Say what this machine can do and what is in the way, each problem with its cure; status 3 when there is one.',
    examples: ['kosa8 doctor', 'kosa8 doctor --json'],
  }, examine)
}

async function examine({ client, host, output }: CommandTools, _args: string[], options: CommonOptions): Promise<number> {
  const checks = [...await checkHost(host.settings), ...await checkDaemon(client)]
  const hasProblem = checks.some(({ state }) => state === 'problem')
  if (options.json === true) output.printJson({ ok: !hasProblem, checks })
  else output.print(checks.flatMap((check) => tellCheck(check, output.hasColour)).join('\n'))
  return hasProblem ? HAS_PROBLEM : 0
}

function tellCheck({ name, state, message, cure }: Check, hasColour: boolean): string[] {
  const mark = MARKS[state]
  const line = `${paint(mark.text, mark.colour, hasColour)}${' '.repeat(9 - mark.text.length)}${name.padEnd(13)} ${message.replace(/\s*\n\s*/g, '; ')}`
  return cure === null ? [line] : [line, `${' '.repeat(23)}${cure}`]
}
