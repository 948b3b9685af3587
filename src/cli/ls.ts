/** `kosa8 ls`. */
import type { Command } from 'commander'
import { BLOCKED_TARGETS_MAX, type BlockedAttempt } from '../model/egress.js'
import { layOutTable } from '../report/table.js'
import type { CommandTools } from './host.js'
import { defineVerb, type Cli, type CommonOptions } from './verb.js'

/** Characters of a list of hosts that are shown. */
const EGRESS_LENGTH_MAX = 30

/** Adds the verb. */
export function addLs(cli: Cli, program: Command): void {
  defineVerb(cli, program, 'ls', { summary: 'List sandboxes.', examples: ['kosa8 ls', 'kosa8 ls --json'] }, list)
}

async function list({ client, output }: CommandTools, _args: string[], options: CommonOptions): Promise<number> {
  const sandboxes = await client.listSandboxes()
  if (options.json === true) {
    output.printJson(sandboxes)
    return 0
  }
  // Shown only where there is something to say: with it, a line does not fit a terminal of 80 columns.
  const hasBlocked = sandboxes.some(({ blocked }) => blocked.length > 0)
  const head = ['name', 'state', 'image', 'memory', 'private', 'cpus', 'disk', 'pids', 'egress', ...(hasBlocked ? ['blocked'] : []), 'repository']
  const rows = sandboxes.map((each) => [
    each.name, each.state, each.image, `${each.memoryMib} MiB`, toMib(each.privateBytes), String(each.cpus),
    each.diskMib === null ? '–' : toGib(each.diskMib), String(each.processesMax), shorten(each.egress),
    ...(hasBlocked ? [tellBlocked(each.blocked)] : []), each.repository ?? '–',
  ])
  const cells = [head, ...rows].map((row) => row.map((text) => ({ text })))
  const layout = { columns: output.columns, colour: false, right: [3, 4, 5, 6, 7, ...(hasBlocked ? [9] : [])] }
  output.print(sandboxes.length === 0 ? 'no sandboxes yet' : layOutTable(cells, layout).join('\n'))
  return 0
}

function toGib(mib: number): string {
  return `${Number((mib / 1024).toFixed(1))} GiB`
}

/** Attempts in all; `+` where some may be forgotten. */
function tellBlocked(blocked: BlockedAttempt[]): string {
  const count = blocked.reduce((sum, each) => sum + each.count, 0)
  return count === 0 ? '–' : `${count}${blocked.length < BLOCKED_TARGETS_MAX ? '' : '+'}`
}

/** A long list is shown in full by `kosa8 egress`. */
function shorten(egress: string): string {
  return egress.length <= EGRESS_LENGTH_MAX ? egress : `${egress.slice(0, EGRESS_LENGTH_MAX - 1)}…`
}

function toMib(bytes: number | null): string {
  return bytes === null ? '–' : `${Math.round(bytes / 1024 ** 2)} MiB`
}
