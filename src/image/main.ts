#!/usr/bin/env node
/**
 * Entry file of the image builder: `build NAME… [--json]`. A process of its own, started by `kosa8 image build`,
 * so that a build can be interrupted and neither daemon nor client has to know how images are made.
 */
import { readSettings } from '../config/environment.js'
import { Kosa8Error, serialiseError, toKosa8Error } from '../errors/kosa8-error.js'
import { buildImage } from './build.js'
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

const [verb, ...rest] = process.argv.slice(2)
const isJson = rest.includes('--json')

try {
  if (verb !== 'build') throw new Kosa8Error('USAGE', `the image builder cannot ${verb ?? 'do nothing'}`, { hint: 'use: build NAME…' })
  const names = rest.filter((word) => word !== '--json')
  await build(names.length === 0 ? DEFAULT_NAMES : names)
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
    const { built, image } = await buildImage(name, { imagesDirectory, onProgress: printStep(name), signal: cancellation.signal })
    images.push({ name, hash: image.hash, built })
    if (!isJson) process.stdout.write(`image ${name} ${image.hash}: ${built ? 'built' : 'up to date'}\n`)
  }
  if (isJson) process.stdout.write(`${JSON.stringify(images)}\n`)
}

/** One plain line when a step begins and when it has ended. */
function printStep(name: string): (progress: ImageProgress) => void {
  let shown = ''
  return ({ title, state, elapsedMs }) => {
    if (state === 'finished') process.stderr.write(`${name}: ${title} (${(elapsedMs / 1000).toFixed(1)} s)\n`)
    else if (title !== shown) process.stderr.write(`${name}: ${title} …\n`)
    shown = title
  }
}
