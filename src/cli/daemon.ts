/** `kosa8 daemon start|stop|status`. */
import type { Command } from 'commander'
import type { DaemonStatus } from '../protocol/status.js'
import { BUILD, VERSION, isSameBuild, tellBuild } from '../protocol/status.js'
import type { CommandTools } from './host.js'
import { defineVerb, type Cli, type CommonOptions } from './verb.js'

/** Status of `daemon status` when none runs, as service managers have it. */
const NOT_RUNNING = 3

/** Adds the verbs. */
export function addDaemon(cli: Cli, program: Command): void {
  const daemon = program.command('daemon').description('Start, stop and look at the background process that owns the sandboxes.')
    .addHelpText('after', '\nExample:\n  $ kosa8 daemon status')
  defineVerb(cli, daemon, 'start', { summary: 'Start it, if it does not run, and let it stay; started by another command it ends when nothing is left to do.', examples: ['kosa8 daemon start'] }, start)
  defineVerb(cli, daemon, 'stop', { summary: 'Stop it; sandboxes go on running and are found again.', examples: ['kosa8 daemon stop'] }, stop)
  defineVerb(cli, daemon, 'status', { summary: 'Say what it does; status 3 when it does not run.', examples: ['kosa8 daemon status --json'] }, status)
}

async function start({ client, output }: CommandTools, _args: string[], options: CommonOptions): Promise<number> {
  await client.keepDaemon()
  const { pid, version } = await client.status()
  if (options.json === true) output.printJson({ running: true, pid, version })
  else output.print(`the daemon runs (process ${pid}, version ${version})`)
  return 0
}

async function stop({ client, output }: CommandTools, _args: string[], options: CommonOptions): Promise<number> {
  const wasRunning = await client.stopDaemon()
  if (options.json === true) output.printJson({ running: false, wasRunning })
  else output.print(wasRunning ? 'the daemon has stopped' : 'the daemon was not running')
  return 0
}

async function status({ client, output }: CommandTools, _args: string[], options: CommonOptions): Promise<number> {
  const found = await client.findDaemon()
  if (found === null) {
    if (options.json === true) output.printJson({ running: false })
    else output.print('the daemon does not run')
    return NOT_RUNNING
  }
  if (!isSameBuild(found)) {
    if (options.json === true) output.printJson({ ...found, sameVersion: false })
    else output.print(`a daemon of version ${tellBuild(found)} runs (process ${found.pid}); this is ${tellBuild({ version: VERSION, build: BUILD })}`)
    return 0
  }
  const full = await client.status()
  if (options.json === true) output.printJson(full)
  else output.print(tellStatus(full))
  return 0
}

function tellStatus(status: DaemonStatus): string {
  const { budget, accelerator, running } = status
  return [
    `the daemon runs (process ${status.pid}, version ${status.version}, since ${status.startedAt})`,
    `home: ${status.home}`,
    `accelerator: ${accelerator === null ? 'not probed yet' : `${accelerator.name} (${accelerator.reason})`}`,
    `memory: ${toMib(budget.reservedBytes)} of ${toMib(budget.totalBytes)} reserved, ${toMib(budget.freeBytes)} free`,
    `sandboxes: ${running.sandboxes}, runs: ${running.runs}`,
    ...status.reservations.map(({ owner, bytes }) => `  ${owner}: ${toMib(bytes)}`),
    ...status.waiting.map(({ owner, message }) => `  ${owner} waits: ${message}`),
  ].join('\n')
}

function toMib(bytes: number): string {
  return `${Math.round(bytes / 1024 ** 2)} MiB`
}
