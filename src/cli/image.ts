/**
 * `kosa8 image build|ls|rm`.
 *
 * Building takes minutes and prints much, and needs no daemon: it is a program of its own, which `build` starts
 * with this command's own streams. Only the daemon knows which images are in use.
 */
import path from 'node:path'
import type { Command } from 'commander'
import { childEnvironment } from '../config/environment.js'
import { layOutTable } from '../report/table.js'
import { findPackageRoot } from '../util/package-root.js'
import { spawnProgram } from '../util/spawn.js'
import type { CommandTools } from './host.js'
import { defineVerb, type Cli, type CommonOptions } from './verb.js'

/** Entry file of the image builder, relative to the package. */
const IMAGE_ENTRY = 'dist/src/image/main.js'

/** Adds the verbs. */
export function addImage(cli: Cli, program: Command): void {
  const image = program.command('image').description('Build, list and remove base images.')
    .addHelpText('after', '\nExample:\n  $ kosa8 image build node')
  defineVerb(cli, image, 'build [names...]', {
    summary: 'Build base images; what is there already is left alone.', examples: ['kosa8 image build', 'kosa8 image build base node'],
  }, build)
  defineVerb(cli, image, 'ls', { summary: 'List base images.', examples: ['kosa8 image ls'] }, list)
  defineVerb(cli, image, 'rm <name>', {
    summary: 'Remove a base image that no sandbox or checkpoint uses.', examples: ['kosa8 image rm node'],
  }, remove)
}

async function build({ host }: CommandTools, names: string[], options: CommonOptions): Promise<number> {
  const args = [path.join(findPackageRoot(), IMAGE_ENTRY), 'build', ...names, ...(options.json === true ? ['--json'] : [])]
  const child = spawnProgram(process.execPath, args, { stdio: 'inherit', env: childEnvironment(host.settings) })
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

async function list({ client, host, output }: CommandTools, _args: string[], options: CommonOptions): Promise<number> {
  const images = await client.listImages()
  if (options.json === true) {
    output.printJson(images)
    return 0
  }
  const head = ['image', 'hash', 'built', 'size']
  const rows = images.map(({ name, hash, createdAt, sizeBytes }) =>
    [name, hash, createdAt.slice(0, 16).replace('T', ' '), `${Math.round(sizeBytes / 1024 ** 2)} MiB`])
  const cells = [head, ...rows].map((row) => row.map((text) => ({ text })))
  const layout = { columns: host.terminalSize().columns, colour: false, right: [3] }
  output.print(images.length === 0 ? 'no images yet: build them with `kosa8 image build`' : layOutTable(cells, layout).join('\n'))
  return 0
}

async function remove({ client, output }: CommandTools, [name]: string[], options: CommonOptions): Promise<number> {
  await client.deleteImage(name as string)
  if (options.json === true) output.printJson({ ok: true, name })
  else output.print(`removed ${name}`)
  return 0
}
