/** `kosa8 cp SRC DST`: one of both is NAME:PATH. */
import path from 'node:path'
import type { Command } from 'commander'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { makeVisible } from '../report/visible.js'
import { copyIn, copyOut, type CopyOptions } from '../sdk/copy.js'
import { countOf } from '../util/count-of.js'
import type { CommandTools } from './host.js'
import { defineVerb, type Cli, type CommonOptions } from './verb.js'

/** How often progress is drawn at most, milliseconds. */
const DRAW_MS = 200
/** Names of files left out that are shown, and how much of each. */
const SHOWN_MAX = 10
const NAME_LENGTH_MAX = 100

/** Adds the verb. */
export function addCp(cli: Cli, program: Command): void {
  defineVerb(cli, program, 'cp <src> <dst>', {
    summary: 'Copy a file or folder into a sandbox or out of it. A path in a sandbox is NAME:PATH, relative to its workspace.',
    examples: ['kosa8 cp ./data web:/srv/data', 'kosa8 cp web:/var/log/app.log .'],
  }, copy)
}

async function copy({ client, host, output }: CommandTools, [src, dst]: string[], options: CommonOptions): Promise<number> {
  const [from, to] = [parsePlace(src as string), parsePlace(dst as string)]
  const sandbox = client.sandbox(from.sandbox ?? to.sandbox ?? '')
  if ((from.sandbox === null) === (to.sandbox === null)) {
    throw new Kosa8Error('USAGE', 'name a place in a sandbox on one side: NAME:PATH', { hint: 'kosa8 cp ./file web:/srv/file' })
  }
  const progress = drawProgress(host.terminals.stderr, (text) => host.stderr.write(text))
  const copied = await (from.sandbox === null
    ? copyIn(sandbox, path.resolve(host.cwd, from.path), to.path, progress.options)
    : copyOut(sandbox, from.path, keepSlash(path.resolve(host.cwd, to.path), to.path), progress.options)).finally(progress.end)
  if (options.json === true) output.printJson(copied)
  else output.print(`${copied.bytes} bytes to ${to.sandbox === null ? '' : `${to.sandbox}:`}${copied.target}`)
  if (copied.skipped.length > 0) output.note(tellSkipped(copied.skipped))
  return 0
}

function tellSkipped(names: string[]): string {
  const shown = names.slice(0, SHOWN_MAX).map((name) => makeVisible(name, NAME_LENGTH_MAX)).join(', ')
  return `left out ${countOf(names.length, 'special file')}: ${shown}${names.length > SHOWN_MAX ? ` and ${names.length - SHOWN_MAX} more` : ''}`
}

function parsePlace(text: string): { sandbox: string | null; path: string } {
  const match = /^([a-z0-9][a-z0-9-]*):([^]*)$/.exec(text)
  return match === null ? { sandbox: null, path: text } : { sandbox: match[1] as string, path: match[2] === '' ? '.' : match[2] as string }
}

function keepSlash(resolved: string, typed: string): string {
  return typed.endsWith('/') && !resolved.endsWith('/') ? `${resolved}/` : resolved
}

function drawProgress(isTerminal: boolean, write: (text: string) => void): { options: CopyOptions; end: () => void } {
  if (!isTerminal) return { options: {}, end: () => undefined }
  let drawnAt = performance.now()
  let isDrawn = false
  return {
    options: {
      onProgress: (bytes) => {
        if (performance.now() - drawnAt < DRAW_MS) return
        drawnAt = performance.now()
        isDrawn = true
        write(`\r${(bytes / 1024 ** 2).toFixed(1)} MiB\u001b[K`)
      },
    },
    end: () => { if (isDrawn) write('\r\u001b[K') },
  }
}
