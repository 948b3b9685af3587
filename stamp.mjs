/**
 * The stamp of a build: a hash of the sources it was made of, kept beside what was built.
 *
 * Owns: that file. `npm run build` writes it; set-up skips a build whose stamp is the one of the sources; client and
 * daemon compare theirs, so that a daemon of an earlier build is noticed. Plain Node without dependencies.
 */
import { createHash } from 'node:crypto'
import { readFileSync, readdirSync, renameSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

const ROOT = path.dirname(fileURLToPath(import.meta.url))

/** Where the stamp lies. */
export const STAMP = path.join(ROOT, 'dist/.sources')

/** Hash of everything the build depends on. */
export function hashSources() {
  const hash = createHash('sha256')
  const add = (file) => hash.update(`\0${path.relative(ROOT, file)}\0`).update(readFileSync(file))
  for (const name of ['package-lock.json', 'tsconfig.json', 'tsconfig.build.json']) add(path.join(ROOT, name))
  for (const folder of ['src', 'workers', 'strategies']) {
    const entries = readdirSync(path.join(ROOT, folder), { recursive: true, withFileTypes: true })
    const files = entries.filter((entry) => entry.isFile()).map((entry) => path.join(entry.parentPath, entry.name))
    for (const file of files.sort()) add(file)
  }
  return hash.digest('hex')
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(`${STAMP}.new`, hashSources())
  renameSync(`${STAMP}.new`, STAMP)
}
