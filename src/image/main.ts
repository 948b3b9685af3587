#!/usr/bin/env node
/**
 * Entry file of the image builder: `build NAME… [--json]`, `import ARCHIVE [--name NAME] [--disk MIB] [--json]`.
 * A process of its own, started by `kosa8 image build` and `import`, so that a build can be interrupted and neither
 * daemon nor client has to know how images are made.
 */
import { parseArgs } from 'node:util'
import { readSettings } from '../config/environment.js'
import { Kosa8Error, serialiseError, toKosa8Error } from '../errors/kosa8-error.js'
import { buildImage } from './build.js'
import { importImage } from './import/import-image.js'
import type { ImageProgress } from './steps.js'

const DEFAULT_NAMES = ['base', 'node']

const cancellation = new AbortController()
const exitStatuses = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 } as const
let interruptedBy: keyof typeof exitStatuses | null = null
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.on(signal, () => {
    interruptedBy = signal
    cancellation.abort()
  })
}

const { values: flags, positionals: [verb, ...rest] } = parseArgs({
  allowPositionals: true,
  options: { json: { type: 'boolean', default: false }, name: { type: 'string' }, disk: { type: 'string' } },
})
const isJson = flags.json

try {
  if (verb === 'build') await build(rest.length === 0 ? DEFAULT_NAMES : rest)
  else if (verb === 'import' && rest.length === 1) await importArchive(rest[0] as string)
  else throw new Kosa8Error('USAGE', `the image builder cannot ${verb ?? 'do nothing'}`, { hint: 'use: build NAME…, or import ARCHIVE' })
  process.exit(0)
} catch (error) {
  const { code, message, hint } = serialiseError(error)
  if (isJson) process.stderr.write(`${JSON.stringify({ error: { code, message, hint } })}\n`)
  else process.stderr.write(`kosa8: ${message}\n${hint === undefined ? '' : `hint: ${hint}\n`}`)
  process.exit(interruptedBy === null ? toKosa8Error(error).exitStatus : exitStatuses[interruptedBy])
}

async function build(names: string[]): Promise<void> {
  const { imagesDirectory } = readSettings()
  const images = []
  for (const name of names) {
    const { built, image } = await buildImage(name, { imagesDirectory, onProgress: createStepPrinter(), signal: cancellation.signal })
    images.push({ name, hash: image.hash, built })
    if (!isJson) process.stdout.write(`image ${name} ${image.hash}: ${built ? 'built' : 'up to date'}\n`)
  }
  if (isJson) process.stdout.write(`${JSON.stringify(images)}\n`)
}

async function importArchive(file: string): Promise<void> {
  const { imported, image, notes } = await importImage(file, {
    imagesDirectory: readSettings().imagesDirectory, name: flags.name, diskMib: flags.disk === undefined ? undefined : Number(flags.disk),
    onProgress: createStepPrinter(), signal: cancellation.signal,
  })
  if (isJson) {
    process.stdout.write(`${JSON.stringify({ name: image.name, hash: image.hash, imported, notes, ...image.imported })}\n`)
    return
  }
  for (const note of notes) process.stderr.write(`note: ${note}\n`)
  process.stdout.write(`image ${image.name} ${image.hash}: ${imported ? image.description : 'up to date'}\n`)
}

/** One plain line when a step begins and when it has ended. */
function createStepPrinter(): (progress: ImageProgress) => void {
  let shown = ''
  return ({ image, title, state, elapsedMs }) => {
    if (state === 'finished') process.stderr.write(`${image}: ${title} (${(elapsedMs / 1000).toFixed(1)} s)\n`)
    else if (title !== shown) process.stderr.write(`${image}: ${title} …\n`)
    shown = title
  }
}
