/** `kosa8 daemon start|stop|status`. */
import path from 'node:path'
import type { Command } from 'commander'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { DaemonStatus, ListenRequest, Listening } from '../protocol/status.js'
import { BUILD, VERSION, isSameBuild, tellBuild } from '../protocol/status.js'
import type { CommandTools } from './host.js'
import { addressOption } from './options.js'
import { defineVerb, type Cli, type CommonOptions } from './verb.js'

interface StartOptions extends CommonOptions {
  listen?: { host: string; port: number }
  tlsCert?: string
  tlsKey?: string
}

/** Status of `daemon status` when none runs, as service managers have it. */
const NOT_RUNNING = 3

/** Adds the verbs. */
export function addDaemon(cli: Cli, program: Command): void {
  const daemon = program.command('daemon').description('Start, stop and look at the background process that owns the sandboxes.')
    .addHelpText('after', '\nExample:\n  $ kosa8 daemon status')
  defineVerb<StartOptions>(cli, daemon, 'start', { summary: 'Start it, if it does not run, and let it stay; started by another command it ends when nothing is left to do.', examples: ['kosa8 daemon start', 'kosa8 daemon start --listen 127.0.0.1:8443'] }, start)
    .option('--listen <host:port>', 'listen on TCP too, until it ends; callers send the token it keeps', addressOption)
    .option('--tls-cert <file>', 'certificate, PEM: needed unless HOST is a loopback address')
    .option('--tls-key <file>', 'its private key, PEM')
  defineVerb(cli, daemon, 'stop', { summary: 'Stop it; sandboxes go on running and are found again.', examples: ['kosa8 daemon stop'] }, stop)
  defineVerb(cli, daemon, 'status', { summary: 'Say what it does; status 3 when it does not run.', examples: ['kosa8 daemon status --json'] }, status)
}

async function start({ client, host, output }: CommandTools, _args: string[], options: StartOptions): Promise<number> {
  const tls = tlsOf(options, host.cwd)
  await client.keepDaemon()
  if (options.listen !== undefined) await client.listen({ ...options.listen, tls })
  const { pid, version, listening } = await client.status()
  if (options.json === true) output.printJson({ running: true, pid, version, listening })
  else output.print(`the daemon runs (process ${pid}, version ${version})${listening === null ? '' : `\n${tellListening(listening)}`}`)
  return 0
}

function tlsOf({ listen, tlsCert, tlsKey }: StartOptions, cwd: string): ListenRequest['tls'] {
  if (tlsCert === undefined && tlsKey === undefined) return null
  if (tlsCert !== undefined && tlsKey !== undefined && listen !== undefined) {
    return { certFile: path.resolve(cwd, tlsCert), keyFile: path.resolve(cwd, tlsKey) }
  }
  throw new Kosa8Error('USAGE', '--tls-cert and --tls-key go together, with --listen')
}

function tellListening({ url, tokenFile }: Listening): string {
  return `listens: ${url} (token in ${tokenFile})`
}

async function stop({ client, output }: CommandTools, _args: string[], options: CommonOptions): Promise<number> {
  const wasRunning = await client.stopDaemon()
  if (options.json === true) output.printJson({ running: false, wasRunning })
  else output.print(wasRunning ? 'the daemon has stopped' : 'the daemon was not running')
  return 0
}

async function status({ client, host, output }: CommandTools, _args: string[], options: CommonOptions): Promise<number> {
  const found = await client.findDaemon()
  if (found === null) {
    if (options.json === true) output.printJson({ running: false })
    else output.print(host.settings.remote === null ? 'the daemon does not run' : `no daemon answers at ${host.settings.remote.url}`)
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
    ...(status.listening === null ? [] : [tellListening(status.listening)]),
    `accelerator: ${accelerator === null ? 'not probed yet' : `${accelerator.name} (${accelerator.reason.replaceAll('\n', '; ')})`}`,
    `memory: ${toMib(budget.reservedBytes)} of ${toMib(budget.totalBytes)} reserved, ${toMib(budget.freeBytes)} free`,
    `sandboxes: ${running.sandboxes}, runs: ${running.runs}`,
    ...status.reservations.map(({ owner, bytes }) => `  ${owner}: ${toMib(bytes)}`),
    ...status.waiting.map(({ owner, message }) => `  ${owner} waits: ${message}`),
  ].join('\n')
}

function toMib(bytes: number): string {
  return `${Math.round(bytes / 1024 ** 2)} MiB`
}
