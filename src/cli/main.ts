#!/usr/bin/env node
/** Entry file of the command `kosa8`: the process as a {@link CliHost}, and the only place that sets its status. */
import type { Writable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { readSettings, type Settings } from '../config/environment.js'
import { toKosa8Error } from '../errors/kosa8-error.js'
import type { CliHost, StopSignal } from './host.js'
import { runCli } from './program.js'

const STOP_SIGNALS: StopSignal[] = ['SIGINT', 'SIGTERM', 'SIGHUP']
/** The command did what it was told, and its output is lost. */
const OUTPUT_LOST = 3
const DEFAULT_COLUMNS = 100
const DEFAULT_ROWS = 24

function createHost(settings: Settings): CliHost {
  return {
    stdout: process.stdout,
    stderr: process.stderr,
    stdin: process.stdin,
    terminals: { stdin: process.stdin.isTTY, stdout: process.stdout.isTTY, stderr: process.stderr.isTTY },
    terminalSize: () => ({
      columns: firstKnown(process.stdout.columns, process.stderr.columns) ?? DEFAULT_COLUMNS,
      rows: firstKnown(process.stdout.rows, process.stderr.rows) ?? DEFAULT_ROWS,
    }),
    onResize: (handler) => {
      process.stdout.on('resize', handler)
      return () => process.stdout.off('resize', handler)
    },
    setRawMode: (isRaw) => { if (process.stdin.isTTY) process.stdin.setRawMode(isRaw) },
    settings,
    cwd: process.cwd(),
    onSignal: (handler) => {
      for (const signal of STOP_SIGNALS) process.on(signal, handler)
      return () => { for (const signal of STOP_SIGNALS) process.off(signal, handler) }
    },
  }
}

/** A terminal whose size nobody has set, as one that a program made, says 0; what is no terminal says nothing. */
function firstKnown(...sizes: (number | undefined)[]): number | undefined {
  return sizes.find((size) => size !== undefined && size > 0)
}

/**
 * Whoever reads our output may stop reading: that ends the output, not the command. Nor does output that cannot be written.
 * @returns what tells, once all is written, why some of it was not
 */
function watchOutput(stream: Writable): () => Promise<Error | null> {
  let failure: Error | null = null
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') failure ??= error
  })
  return async () => {
    await flush(stream)
    // A failed write is told after the call that made it.
    await nextTurn()
    return failure
  }
}

async function flush(stream: Writable): Promise<void> {
  if (stream.destroyed || stream.writableLength === 0) return
  await new Promise<void>((resolve) => {
    stream.once('error', () => resolve())
    stream.write('', () => resolve())
  })
}

async function main(): Promise<number> {
  try {
    return await runCli(process.argv.slice(2), createHost(readSettings()))
  } catch (thrown) {
    const error = toKosa8Error(thrown)
    process.stderr.write(`kosa8: ${error.message}\n${error.hint === undefined ? '' : `hint: ${error.hint}\n`}`)
    return error.exitStatus
  }
}

const [outputEnds, errorsEnd] = [watchOutput(process.stdout), watchOutput(process.stderr)]
const status = await main()
const lost = await outputEnds()
if (lost !== null) process.stderr.write(`kosa8: the output cannot be written: ${lost.message}\n`)
await errorsEnd()
process.exit(lost === null || status !== 0 ? status : OUTPUT_LOST)
