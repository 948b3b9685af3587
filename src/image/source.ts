/**
 * The source of an image: a root tree and a kernel, made once for all images that share it.
 *
 * Owns: `<images>/.sources/<hash>/{root.tar.zst,kernel.tar.zst}` and how the two are made: from a
 * Debian release with mmdebstrap, or from folders. Called by `build.ts` with the lock held.
 */
import { mkdir, readdir, rename, rm, stat } from 'node:fs/promises'
import path from 'node:path'
import { makeFolder } from '../util/make-folder.js'
import { runProgram } from '../util/spawn.js'
import type { ImageSource } from './recipe.js'
import type { BuildSteps } from './steps.js'

/** The two archives of a source. */
export interface SourceArchives {
  root: string
  kernel: string
}

const SOURCES_FOLDER = '.sources'
const NAMES = { root: 'root.tar.zst', kernel: 'kernel.tar.zst' }

/** Where a source's archives are or will be. */
export function sourceArchives(imagesDirectory: string, hash: string): SourceArchives {
  const folder = path.join(imagesDirectory, SOURCES_FOLDER, hash)
  return { root: path.join(folder, NAMES.root), kernel: path.join(folder, NAMES.kernel) }
}

/** True when the source with that hash was made before. */
export async function hasSource(imagesDirectory: string, hash: string): Promise<boolean> {
  return (await stat(sourceArchives(imagesDirectory, hash).root).catch(() => null)) !== null
}

/** What making a source needs to know. */
export interface SourceBuild {
  source: ImageSource
  hash: string
  imagesDirectory: string
  recipesDirectory: string
  /** Folder of this build, removed at its end. */
  workFolder: string
  steps: BuildSteps
}

/** Makes the source unless it is there; in full or not at all. */
export async function ensureSource(build: SourceBuild): Promise<SourceArchives> {
  const archives = sourceArchives(build.imagesDirectory, build.hash)
  if (await hasSource(build.imagesDirectory, build.hash)) return archives
  const folder = path.join(build.workFolder, 'source')
  await mkdir(folder)
  if (build.source.kind === 'debian') await buildDebian(build.source, folder, build)
  else await packTree(build.source, folder, build)
  await makeFolder(path.join(build.imagesDirectory, SOURCES_FOLDER))
  await rename(folder, path.dirname(archives.root))
  return archives
}

/** Removes the sources that none of the images there was made from. */
export async function pruneSources(imagesDirectory: string, usedHashes: Set<string>): Promise<void> {
  const folder = path.join(imagesDirectory, SOURCES_FOLDER)
  for (const hash of await readdir(folder).catch(() => [])) {
    if (!usedHashes.has(hash)) await rm(path.join(folder, hash), { recursive: true, force: true })
  }
}

/** Runs in the new system: unpacks the newest kernel without installing it. */
const FETCH_KERNEL = `set -e; cd /var/cache/apt
package=$(apt-cache depends "$0" | sed -n 's/^ *Depends: \\(linux-image-[0-9].*\\)$/\\1/p' | head -n 1)
apt-get -q download "$package"; mkdir /kosa8-kernel; dpkg-deb -x "$package"_*.deb /kosa8-kernel; rm "$package"_*.deb`

async function buildDebian(source: ImageSource & { kind: 'debian' }, folder: string, build: SourceBuild): Promise<void> {
  const hooks = [
    `chroot "$1" sh -c ${quote(FETCH_KERNEL)} ${quote(source.kernelPackage)}`,
    'tar-out /kosa8-kernel kernel.tar',
    'rm -r "$1/kosa8-kernel"',
    // Copied from this host by mmdebstrap; the recipe has the guest's own.
    'rm -f "$1/etc/hostname" "$1/etc/resolv.conf"',
  ]
  const args = [
    '--variant=minbase', `--include=${source.packages.join(',')}`, '--aptopt=Acquire::Languages "none"',
    ...source.excludedPaths.map((pattern) => `--dpkgopt=path-exclude=${pattern}`),
    ...hooks.map((hook) => `--customize-hook=${hook}`),
    source.suite, NAMES.root,
  ]
  await build.steps.run(`install Debian ${source.suite} and its kernel`, async (step) => {
    const [program, ...rest] = [...await privateMounts(), 'env', ...temporaryFolder(build.workFolder), 'mmdebstrap', ...args]
    await step.runProgram(program!, rest, { cwd: folder })
    await step.runProgram('zstd', ['-q', '-3', '--rm', 'kernel.tar', '-o', NAMES.kernel], { cwd: folder })
  })
}

/**
 * As root, mmdebstrap mounts /proc, /sys and devices into the new system. In a mount namespace of
 * its own they are gone with its last process, even when it was killed, and we can remove the tree.
 */
async function privateMounts(): Promise<string[]> {
  const prefix = ['unshare', '--mount', '--propagation', 'private', '--']
  if (process.getuid?.() !== 0) return []
  const isAllowed = await runProgram(prefix[0]!, [...prefix.slice(1), 'true']).then(({ code }) => code === 0, () => false)
  return isAllowed ? prefix : []
}

/**
 * Root builds inside the build's folder, which the next build tidies up after a crash. An ordinary
 * user's build runs under other user ids that cannot enter a home folder, so it stays in /tmp.
 */
function temporaryFolder(workFolder: string): string[] {
  return process.getuid?.() === 0 && /^[\w/.-]+$/.test(workFolder) ? [`TMPDIR=${workFolder}`] : []
}

function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`
}

async function packTree(source: ImageSource & { kind: 'tree' }, folder: string, build: SourceBuild): Promise<void> {
  await build.steps.run('pack the root tree and the kernel', async (step) => {
    for (const [name, directory] of [[NAMES.root, source.root], [NAMES.kernel, source.kernel]] as const) {
      await step.runProgram('tar', [
        '--use-compress-program=zstd', '--owner=0', '--group=0', '--numeric-owner',
        '-C', path.resolve(build.recipesDirectory, directory), '-cf', path.join(folder, name), '.',
      ])
    }
  })
}
