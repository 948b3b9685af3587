/** `kosa8 fork`: plan, start, follow, show the comparison. */
import { Option, type Command } from 'commander'
import type { RunDocument } from '../model/run.js'
import { renderReport } from '../report/registry.js'
import { buildRunRequest, type ForkOptions } from '../sdk/fork-request.js'
import { exportReport } from './export-report.js'
import { followRun, type FollowedRun } from './follow-run.js'
import { exitStatusOf } from './exit-status.js'
import { SIGNAL_STATUS, type CommandTools } from './host.js'
import {
  diskOption, durationOption, EGRESS_HELP, egressOption, listOption, matrixOption, memoryOption, parallelOption, processesOption,
  repeatedOption, wholeNumberOption,
} from './options.js'
import { defineVerb, type Cli, type CommonOptions } from './verb.js'

/** Flags of `fork` as commander hands them over. */
interface ForkFlags extends ForkOptions, CommonOptions {
  require?: 'pass'
  report?: string
}

/** Adds the verb. */
export function addFork(cli: Cli, program: Command): void {
  defineVerb<ForkFlags>(cli, program, 'fork [sandbox]', {
    summary: 'Fork one checkpoint into a clone per approach, and compare what each changed and what its tests say.',
    examples: [
      'kosa8 fork --approaches quick-fix,rewrite --test "npm test"',
      'kosa8 fork --approaches tune --matrix depth=2,4,8 --repeats 3 --json',
      'kosa8 fork db --from "before migration" --approaches a,b',
    ],
  }, fork)
    .requiredOption('--approaches <names>', 'approaches to try, by name, separated by commas', listOption)
    .option('--repo <dir>', 'the repository (default: the one this folder is in)')
    .option('--from <checkpoint>', 'fork this checkpoint of SANDBOX, by id or label')
    .option('--test <command>', 'shell command that runs the tests')
    .option('--results <glob>', 'report files the tests write; may be given several times', repeatedOption)
    .option('--repeats <n>', 'trials per approach', wholeNumberOption(1, 100))
    .option('--matrix <key=v1,v2>', 'try every approach with each value; may be given several times', matrixOption)
    .option('--parallel <n|auto>', 'trials at once (default: as many as memory and processors allow)', parallelOption)
    .option('--timeout <duration>', 'limit of one trial', durationOption)
    .addOption(new Option('--keep <which>', 'clones to keep as sandboxes').choices(['none', 'winner', 'all']).default('none'))
    .addOption(new Option('--require <what>', 'end with status 1 when no approach passes').choices(['pass']))
    .option('--report <dir>', 'copy report.md, run.json and the patches there')
    .option('--no-uncommitted', 'leave uncommitted changes out of the base')
    .option('--setup <command>', 'shell command, run once before the checkpoint')
    .option('--image <name>', 'base image of the sandbox made for the run')
    .option('--mem <size>', 'its memory, e.g. 512M or 2G', memoryOption)
    .option('--cpus <n>', 'its virtual processors', wholeNumberOption(1, 64))
    .option('--disk <size>', 'size of its disk, e.g. 20G', diskOption)
    .option('--pids <n>', 'processes of all its commands together', processesOption)
    .option('--egress <rule>', EGRESS_HELP, egressOption)
}

async function fork(tools: CommandTools, [name]: string[], options: ForkFlags): Promise<number> {
  const { client, host } = tools
  client.refuseIfRemote('startRun')
  const source = name === undefined ? null : await client.sandbox(name).describe()
  const request = await buildRunRequest(options, source, host.cwd)
  await client.connect()
  const followed = await followRun(tools, () => client.runs.start(request))
  return presentRun(tools, followed, options)
}

/** Shows how a followed run ended and decides the status; shared with `runs show --follow`. */
export async function presentRun(
  tools: CommandTools, { id, document, stoppedBy }: FollowedRun, options: { json?: boolean; require?: 'pass'; report?: string },
): Promise<number> {
  const { output } = tools
  if (document === null) {
    output.note(`run ${id} has not ended yet: see \`kosa8 runs show ${id}\``)
    return stoppedBy === null ? 3 : SIGNAL_STATUS[stoppedBy]
  }
  if (options.json === true) output.print(renderReport('json', document))
  else showDocument(tools, document)
  if (options.report !== undefined) {
    await exportReport(tools.client, document, options.report)
    if (options.json !== true) output.print(`report: ${options.report}`)
  }
  if (document.error !== null) output.error(document.error as Parameters<typeof output.error>[0], options.json === true)
  return stoppedBy === null ? exitStatusOf(document, { requirePass: options.require === 'pass' }) : SIGNAL_STATUS[stoppedBy]
}

/** Prints the comparison for people. */
export function showDocument({ host, output }: CommandTools, document: RunDocument): void {
  output.print(renderReport('text', document, { colour: output.hasColour, columns: host.terminalSize().columns }))
  output.print(`results: ${document.dir}`)
}
