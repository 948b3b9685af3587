/** `kosa8 create NAME`. */
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import type { Command } from 'commander'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { CreateSandboxOptions } from '../sdk/client.js'
import { readSandboxDefaults } from '../sdk/sandbox-defaults.js'
import type { CommandTools } from './host.js'
import { diskOption, EGRESS_HELP, egressOption, memoryOption, processesOption, wholeNumberOption } from './options.js'
import { withSteps } from './step-progress.js'
import { defineVerb, type Cli, type CommonOptions } from './verb.js'

interface CreateOptions extends CommonOptions {
  image?: string
  mem?: number
  cpus?: number
  disk?: number
  pids?: number
  egress?: string
  repo?: string
  approvals?: string
}

/** Adds the verb. */
export function addCreate(cli: Cli, program: Command): void {
  defineVerb<CreateOptions>(cli, program, 'create <name>', {
    summary: 'Create a sandbox: a virtual machine of its own, running.',
    examples: ['kosa8 create db --mem 512M', 'kosa8 create web --repo . --image node', 'kosa8 create web --egress registry.example,*.example.org'],
  }, create)
    .option('--image <name>', 'base image (default: base, or what the repository asks for)')
    .option('--mem <size>', 'memory, e.g. 512M or 2G', memoryOption)
    .option('--cpus <n>', 'virtual processors', wholeNumberOption(1, 64))
    .option('--disk <size>', 'size of its disk, e.g. 20G (default: what the image has)', diskOption)
    .option('--pids <n>', 'processes of all its commands together, threads counted (default: 4096)', processesOption)
    .option('--egress <rule>', EGRESS_HELP, egressOption)
    .option('--repo <dir>', 'repository to put into its workspace')
    .option('--approvals <file>', 'public key: rewinding, removing and changing egress then need an approval signed with its private key')
}

async function create({ client, host, output }: CommandTools, [name]: string[], options: CreateOptions): Promise<number> {
  const wanted = { name: name as string, ...await readSandboxDefaults(options.repo, host.cwd), ...flagsOf(options), ...await readApprovals(options.approvals, host.cwd) }
  const sandbox = await withSteps(host, `making sandbox ${wanted.name}`, (onStep) => client.createSandbox(wanted, { onStep }))
  if (options.json === true) output.printJson(sandbox)
  else output.print(`${sandbox.name} is ${sandbox.state} (${sandbox.image}, ${sandbox.memoryMib} MiB, egress ${sandbox.egress}${sandbox.approvals === null ? '' : `, approvals by ${sandbox.approvals}`})`)
  return 0
}

async function readApprovals(file: string | undefined, cwd: string): Promise<{ approvals?: string }> {
  if (file === undefined) return {}
  const text = await readFile(path.resolve(cwd, file), 'utf8').catch((cause: unknown) => {
    throw new Kosa8Error('USAGE', `the public key ${file} cannot be read`, { hint: 'make a pair with `kosa8 approve keygen`', cause })
  })
  return { approvals: text }
}

function flagsOf({ image, mem, cpus, disk, pids, egress }: CreateOptions): Omit<CreateSandboxOptions, 'name'> {
  return {
    ...(image === undefined ? {} : { image }),
    ...(mem === undefined ? {} : { memMb: mem }),
    ...(cpus === undefined ? {} : { cpus }),
    ...(disk === undefined ? {} : { diskMb: disk }),
    ...(pids === undefined ? {} : { maxProcesses: pids }),
    ...(egress === undefined ? {} : { egress }),
  }
}
