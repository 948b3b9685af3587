/** Where this copy of the package lies, whether it runs from `src/` or from `dist/src/`. */
import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

/** Absolute path of the nearest folder above this file that holds a package.json. */
export function findPackageRoot(): string {
  let directory = path.dirname(fileURLToPath(import.meta.url))
  while (!existsSync(path.join(directory, 'package.json'))) {
    const parent = path.dirname(directory)
    if (parent === directory) throw new Error('no package.json above the kosa8 sources')
    directory = parent
  }
  return directory
}

/** The command that installs the programs and images kosa8 needs, for a checkout and for a project that has the package. */
export function setupCommand(): string {
  return `node ${path.join(findPackageRoot(), 'setup.mjs')}`
}

/** Version of this package, from its package.json. */
export function readPackageVersion(): string {
  const text = readFileSync(path.join(findPackageRoot(), 'package.json'), 'utf8')
  return (JSON.parse(text) as { version: string }).version
}

/** What the build of this package was made of, 16 hex digits; "unstamped" where nobody noted it. */
export function readBuildStamp(): string {
  const file = path.join(findPackageRoot(), 'dist/.sources')
  return existsSync(file) ? readFileSync(file, 'utf8').slice(0, 16) : 'unstamped'
}
