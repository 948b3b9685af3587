/**
 * A folder of the host as a tar archive on its way into a sandbox.
 *
 * Owns: what goes into it. Files, folders and links do; named pipes, sockets and devices are left out and named, and
 * none of them is ever opened. GNU tar writes the archive, of the names it is given. Called by `copy.ts`.
 */
import { readdir } from 'node:fs/promises'
import { Readable, type Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { spawnProgram } from '../util/spawn.js'
import { readText } from './read-text.js'

/** A folder that is being packed. */
export interface PackedFolder {
  archive: Readable
  /** Resolves when everything is in the archive, to the names of what was left out. @throws USAGE when something cannot be read. */
  finished: Promise<string[]>
  /** Gives it up. */
  stop(): void
}

const TAR_ARGUMENTS = ['--owner=0', '--group=0', '--numeric-owner', '--no-recursion', '--null', '--files-from=-', '-cf', '-']

/** Begins to pack what is in `folder`; names in the archive begin with `./`. */
export function packFolder(folder: string): PackedFolder {
  const tar = spawnProgram('tar', ['-C', folder, ...TAR_ARGUMENTS], { stdio: 'pipe' })
  const ended = new Promise<number | null>((resolve, reject) => { tar.once('error', reject); tar.once('close', resolve) })
  const complaint = readText(tar.stderr as Readable)
  const skipped: string[] = []
  const listed = pipeline(Readable.from(listNames(folder, skipped), { objectMode: false }), tar.stdin as Writable).catch((error: NodeJS.ErrnoException) => {
    // A tar that ends before it has read every name says itself why.
    if (error.code !== 'EPIPE' && error.code !== 'ERR_STREAM_PREMATURE_CLOSE') throw error
  })
  const finished = Promise.all([listed, ended, complaint]).then(([, status, text]) => {
    if (status !== 0) throw new Error(text.trim())
    return skipped
  }).catch((cause: unknown) => {
    throw new Kosa8Error('USAGE', `packing ${folder} failed: ${(cause as Error).message}`, { cause })
  })
  finished.catch(() => undefined) // told to whoever waits for it, unless unpacking has failed before
  return { archive: tar.stdout as Readable, finished, stop: () => tar.kill() }
}

/** Every name that is packed, folders before what is in them, each with a NUL behind it. Names are bytes: they need not be text. */
async function* listNames(folder: string, skipped: string[]): AsyncGenerator<Buffer> {
  const top = Buffer.from(folder)
  const pending: Buffer[] = [Buffer.from('.')]
  for (let place = pending.pop(); place !== undefined; place = pending.pop()) {
    const names = [place]
    for (const entry of await readdir(join(top, place), { withFileTypes: true, encoding: 'buffer' })) {
      const name = join(place, entry.name)
      if (entry.isDirectory()) pending.push(name)
      else if (entry.isFile() || entry.isSymbolicLink()) names.push(name)
      else skipped.push(name.toString('utf8'))
    }
    yield Buffer.concat(names.flatMap((name) => [name, NUL]))
  }
}

const NUL = Buffer.from('\0')
const SLASH = Buffer.from('/')

function join(folder: Buffer, name: Buffer): Buffer {
  return Buffer.concat([folder, SLASH, name])
}
