/** `kosa8 runs ls|show|rm`. */
import type { Command } from 'commander'
import type { RunEvent } from '../model/run.js'
import type { RunStatus } from '../protocol/runs.js'
import { renderReport } from '../report/registry.js'
import { renderRunsList } from '../report/runs-list.js'
import { layOutTable } from '../report/table.js'
import { makeLinesVisible, makeVisible } from '../report/visible.js'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { followRun } from './follow-run.js'
import { presentRun, showDocument } from './fork.js'
import type { CommandTools } from './host.js'
import { resolveRun } from './run-argument.js'
import { printStream } from './stream-output.js'
import { defineAction, defineVerb, type Cli, type CommonOptions } from './verb.js'

interface ShowOptions extends CommonOptions {
  follow?: boolean
  log?: string
}

/** Adds the verbs. */
export function addRuns(cli: Cli, program: Command): void {
  const runs = defineAction(cli, program.command('runs'), {
    summary: 'List, show and remove runs.', examples: ['kosa8 runs', 'kosa8 runs show latest --follow'],
  }, list)
  defineVerb(cli, runs, 'ls', { summary: 'List runs, newest first.', examples: ['kosa8 runs ls'] }, list)
  defineVerb<ShowOptions>(cli, runs, 'show <run>', {
    summary: 'Show where a run is, or how it ended. RUN is an id, or latest.',
    examples: ['kosa8 runs show latest', 'kosa8 runs show latest --follow', 'kosa8 runs show latest --log quick-fix/2'],
  }, show)
    .option('--follow', 'show events and output of trials until the run ends')
    .option('--log <label[/repeat]>', 'print the log of one trial')
  defineVerb(cli, runs, 'rm <run>', {
    summary: 'Remove a run: its folder and its refs.', examples: ['kosa8 runs rm r20261129-151200-1f3a9c02'],
  }, remove)
}

async function list({ client, output }: CommandTools, _args: string[], options: CommonOptions): Promise<number> {
  const runs = await client.runs.list()
  if (options.json === true) output.printJson(runs)
  else output.print(renderRunsList(runs, { colour: output.hasColour, columns: output.columns }))
  return 0
}

async function show(tools: CommandTools, [run]: string[], options: ShowOptions): Promise<number> {
  const { client, output } = tools
  const id = await resolveRun(client, run as string)
  if (options.log !== undefined) return showLog(tools, id, options.log)
  if (options.follow === true) return follow(tools, id, options)
  const status = await client.runs.get(id)
  if (options.json === true) output.print(status.document === null ? JSON.stringify(status, null, 2) : renderReport('json', status.document))
  else if (status.document === null) output.print(tellStatus(status))
  else showDocument(tools, status.document)
  return 0
}

/** Ending this command ends the watching, not the run. */
async function follow(tools: CommandTools, id: string, options: ShowOptions): Promise<number> {
  const watching = { ...tools, host: { ...tools.host, onSignal: () => () => undefined } }
  const followed = await followRun(watching, async () => id, (event) => showOutput(tools, event))
  return presentRun(tools, followed, options)
}

function showOutput({ host }: CommandTools, event: RunEvent): void {
  if (event.type !== 'trial-output') return
  const name = makeVisible(event.repeat === 1 ? event.label : `${event.label} #${event.repeat}`)
  const lines = makeLinesVisible(event.text).replace(/\n$/, '').split('\n')
  host.stderr.write(lines.map((line) => `${name} | ${line}\n`).join(''))
}

async function showLog(tools: CommandTools, id: string, selector: string): Promise<number> {
  const [label, repeat = '1'] = selector.split('/')
  const { document } = await tools.client.runs.get(id)
  const trial = document?.trials.find((each) => each.label === label && String(each.repeat) === repeat)
  if (trial !== undefined && trial.log === null) {
    throw new Kosa8Error('USAGE', `the trial ${label}/${repeat} of run ${id} has no log`)
  }
  await printStream(tools.host, await tools.client.runs.file(id, trial?.log ?? `trials/${label}/${repeat}/log`))
  return 0
}

function tellStatus({ id, phase, trials }: RunStatus): string {
  const rows = trials.map((trial) => [
    { text: makeVisible(trial.label) }, { text: `#${trial.repeat}` }, { text: trial.state ?? trial.phase }, { text: makeVisible(trial.message) },
  ])
  return [`run ${id}: ${phase}`, ...layOutTable(rows, { columns: 120, colour: false, right: [] })].join('\n')
}

async function remove({ client, output }: CommandTools, [run]: string[], options: CommonOptions): Promise<number> {
  const id = await resolveRun(client, run as string)
  await client.runs.remove(id)
  if (options.json === true) output.printJson({ ok: true, id })
  else output.print(`removed ${id}`)
  return 0
}
