/** `kosa8 create NAME`. */
import path from 'node:path'
import type { Command } from 'commander'
import { resolveProject } from '../config/project-defaults.js'
import { readProjectFile } from '../config/project-file.js'
import { findRepositoryRoot } from '../config/repository.js'
import type { CommandTools } from './host.js'
import { egressOption, memoryOption, wholeNumberOption } from './options.js'
import { defineVerb, type Cli, type CommonOptions } from './verb.js'

interface CreateOptions extends CommonOptions {
  image?: string
  mem?: number
  cpus?: number
  egress?: 'deny' | 'allow'
  repo?: string
}

/** Adds the verb. */
export function addCreate(cli: Cli, program: Command): void {
  defineVerb<CreateOptions>(cli, program, 'create <name>', {
    summary: 'Create a sandbox: a virtual machine of its own, running.',
    examples: ['kosa8 create db --mem 512M', 'kosa8 create web --repo . --image node'],
  }, create)
    .option('--image <name>', 'base image (default: base, or what the repository asks for)')
    .option('--mem <size>', 'memory, e.g. 512M or 2G', memoryOption)
    .option('--cpus <n>', 'virtual processors', wholeNumberOption(1, 64))
    .option('--egress <rule>', 'what it may reach: deny or allow', egressOption)
    .option('--repo <dir>', 'repository to put into its workspace')
}

async function create({ client, host, output }: CommandTools, [name]: string[], options: CreateOptions): Promise<number> {
  const wanted = { name: name as string, ...await repositoryDefaults(options.repo, host.cwd), ...flagsOf(options) }
  const sandbox = await client.createSandbox(wanted)
  if (options.json === true) output.printJson(sandbox)
  else output.print(`${sandbox.name} is ${sandbox.state} (${sandbox.image}, ${sandbox.memoryMib} MiB, egress ${sandbox.egress})`)
  return 0
}

interface SandboxShape {
  image?: string
  memMb?: number
  cpus?: number
  egress?: 'deny' | 'allow'
  repository?: string
}

async function repositoryDefaults(repo: string | undefined, cwd: string): Promise<SandboxShape> {
  if (repo === undefined) return {}
  const repository = await findRepositoryRoot(path.resolve(cwd, repo))
  const { image, memoryMib, cpus, egress } = await resolveProject(await readProjectFile(repository), repository)
  return { image, memMb: memoryMib, cpus, egress, repository }
}

function flagsOf({ image, mem, cpus, egress }: CreateOptions): SandboxShape {
  return {
    ...(image === undefined ? {} : { image }),
    ...(mem === undefined ? {} : { memMb: mem }),
    ...(cpus === undefined ? {} : { cpus }),
    ...(egress === undefined ? {} : { egress }),
  }
}
