/** `kosa8 egress NAME [RULE] [--approval ID]`. */
import type { Command } from 'commander'
import { BLOCKED_TARGETS_MAX } from '../model/egress.js'
import { layOutTable } from '../report/table.js'
import type { SandboxDescription } from '../protocol/sandboxes.js'
import type { CommandTools } from './host.js'
import { APPROVAL_HELP, approvalOf, egressOption } from './options.js'
import { tellAge } from './relative-time.js'
import { defineVerb, type Cli, type CommonOptions } from './verb.js'

/** Characters of a target that are shown; a guest chooses names of any length. */
const TARGET_LENGTH_MAX = 60

interface EgressOptions extends CommonOptions {
  approval?: string
}

/** Adds the verb. */
export function addEgress(cli: Cli, program: Command): void {
  defineVerb<EgressOptions>(cli, program, 'egress <name>', {
    summary: 'Show what a sandbox may reach and what was blocked, or change it while it runs: deny, or hosts.',
    examples: ['kosa8 egress web', "kosa8 egress web 'registry.example,*.example.org,127.0.0.1:8080'", 'kosa8 egress web deny'],
  }, egress)
    .argument('[rule]', 'deny, or hosts separated by commas: names, *.name, * or addresses, each with or without :port', egressOption)
    .option('--approval <id>', APPROVAL_HELP)
}

async function egress({ client, output }: CommandTools, [name, rule]: string[], options: EgressOptions): Promise<number> {
  const handle = client.sandbox(name as string)
  const sandbox = rule === undefined ? await handle.describe() : await handle.setEgress(rule, approvalOf(options))
  if (options.json === true) {
    output.printJson({ name: sandbox.name, egress: sandbox.egress, blocked: sandbox.blocked })
    return 0
  }
  output.print(`${sandbox.name}: egress ${sandbox.egress}`)
  if (rule === undefined) output.print(tellBlocked(sandbox, output.columns))
  return 0
}

function tellBlocked({ blocked }: SandboxDescription, columns: number): string {
  if (blocked.length === 0) return 'nothing was blocked'
  const rows = blocked.map(({ target, count, lastAt, reason }) => [shortenTarget(target), String(count), tellAge(lastAt, Date.now()), reason])
  const cells = [['blocked', 'times', 'last', 'why'], ...rows].map((row) => row.map((text) => ({ text })))
  const lines = layOutTable(cells, { columns, colour: false, right: [1] })
  return [...lines, ...(blocked.length < BLOCKED_TARGETS_MAX ? [] : [`these are the last ${BLOCKED_TARGETS_MAX} targets`])].join('\n')
}

/** The end of a long one: it says whose name it is, and the port. */
function shortenTarget(target: string): string {
  return target.length <= TARGET_LENGTH_MAX ? target : `…${target.slice(1 - TARGET_LENGTH_MAX)}`
}
