/**
 * `kosa8 image build|import|ls|rm`.
 *
 * Building and importing take minutes, print much and need no daemon: they are a program of its own, started with
 * this command's own streams. Only the daemon knows which images are in use.
 */
import path from 'node:path'
import type { Command } from 'commander'
import { childEnvironment } from '../config/environment.js'
import { layOutTable } from '../report/table.js'
import { findPackageRoot } from '../util/package-root.js'
import { spawnProgram } from '../util/spawn.js'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { CliHost, CommandTools } from './host.js'
import { diskOption } from './options.js'
import { tellAge } from './relative-time.js'
import { defineVerb, type Cli, type CommonOptions } from './verb.js'

/** Entry file of the image builder, relative to the package. */
const IMAGE_ENTRY = 'dist/src/image/main.js'

interface ImportOptions {
  name?: string
  /** MiB. */
  disk?: number
}

/** Adds the verbs. */
export function addImage(cli: Cli, program: Command): void {
  const image = program.command('image').description('Build, list and remove base images.')
    .addHelpText('after', '\nExample:\n  $ kosa8 image build node')
  defineVerb(cli, image, 'build [names...]', {
    summary: 'Build base images; what is there already is left alone.', examples: ['kosa8 image build', 'kosa8 image build base node'],
  }, build)
  defineVerb<ImportOptions>(cli, image, 'import <archive>', {
    summary: 'Make a base image of a container image: a file of `docker save`, or an OCI image layout as tar or folder.',
    examples: ['kosa8 image import web.tar', 'kosa8 image import ./layout --name web --disk 16G'],
  }, importArchive)
    .option('--name <name>', 'name of the base image (default: made of the container image\'s own)')
    .option('--disk <size>', 'size of the disk as machines see it, e.g. 16G (default: 8G, more for large images)', diskOption)
  defineVerb(cli, image, 'ls', { summary: 'List base images.', examples: ['kosa8 image ls'] }, list)
  defineVerb<{ old?: boolean }>(cli, image, 'rm <name>', {
    summary: 'Remove a base image that nothing uses.', examples: ['kosa8 image rm web', 'kosa8 image rm base --old'],
  }, remove)
    .option('--old', 'only the versions that are neither the newest nor in use')
}

async function build({ host }: CommandTools, names: string[], options: CommonOptions): Promise<number> {
  return runBuilder(host, ['build', ...(options.json === true ? ['--json'] : []), '--', ...names])
}

async function importArchive({ host }: CommandTools, [archive]: string[], options: ImportOptions & CommonOptions): Promise<number> {
  return runBuilder(host, [
    'import', ...(options.json === true ? ['--json'] : []), ...(options.name === undefined ? [] : [`--name=${options.name}`]),
    ...(options.disk === undefined ? [] : [`--disk=${options.disk}`]), '--', path.resolve(host.cwd, archive as string),
  ])
}

async function runBuilder(host: CliHost, args: string[]): Promise<number> {
  if (host.settings.remote !== null) {
    throw new Kosa8Error('LOCAL_ONLY', `images are made on the host of their daemon, and KOSA8_URL names another: ${host.settings.remote.url}`, { hint: 'run it there' })
  }
  const child = spawnProgram(process.execPath, [path.join(findPackageRoot(), IMAGE_ENTRY), ...args], {
    stdio: 'inherit', env: childEnvironment(host.settings),
  })
  const stopListening = host.onSignal((signal) => child.kill(signal))
  try {
    return await new Promise<number>((resolve, reject) => {
      child.once('error', reject)
      child.once('exit', (code) => resolve(code ?? 130))
    })
  } finally {
    stopListening()
  }
}

async function list({ client, output }: CommandTools, _args: string[], options: CommonOptions): Promise<number> {
  const images = await client.listImages()
  if (options.json === true) {
    output.printJson(images)
    return 0
  }
  const head = ['image', 'hash', 'made', 'size', 'source', 'in use by']
  const rows = images.map(({ name, hash, createdAt, sizeBytes, source, usedBy }) =>
    [name, hash, tellAge(createdAt, Date.now()), mib(sizeBytes), source, tellUsers(usedBy)])
  const cells = [head, ...rows].map((row) => row.map((text) => ({ text })))
  const layout = { columns: output.columns, colour: false, right: [3] }
  output.print(images.length === 0 ? 'no images yet: build them with `kosa8 image build`' : layOutTable(cells, layout).join('\n'))
  return 0
}

async function remove({ client, output }: CommandTools, [name]: string[], options: CommonOptions & { old?: boolean }): Promise<number> {
  if (options.old === true) return removeOld({ client, output }, name as string, options)
  await client.deleteImage(name as string)
  if (options.json === true) output.printJson({ ok: true, name })
  else output.print(`removed ${name}`)
  return 0
}

async function removeOld({ client, output }: Pick<CommandTools, 'client' | 'output'>, name: string, { json }: CommonOptions): Promise<number> {
  const answer = await client.deleteOldImages(name)
  if (json === true) {
    output.printJson(answer)
    return 0
  }
  const { removed, freedBytes, kept } = answer
  output.print(removed.length === 0 ? `nothing of ${name} to remove` : `removed ${removed.length} older of ${name}: ${removed.join(', ')} (${mib(freedBytes)})`)
  for (const { hash, usedBy } of kept) output.print(`kept ${hash}: used by ${tellUsers(usedBy)}`)
  return 0
}

function mib(bytes: number): string {
  return `${Math.round(bytes / 1024 ** 2)} MiB`
}

function tellUsers(users: string[]): string {
  return users.slice(0, 3).join(', ') + (users.length > 3 ? ` and ${users.length - 3} more` : '')
}
