/**
 * The root disk: the source's tree with the recipe's files on top, as a raw ext4 file system.
 *
 * Owns: putting the layer on top together and making the file system with the right owners, also
 * for an ordinary user (under fakeroot). Called by `build.ts`.
 */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { chmod, mkdir, readdir, readFile, stat, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { pipeline } from 'node:stream/promises'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { makeFolder } from '../util/make-folder.js'
import type { NpmPackage, Recipe } from './recipe.js'
import type { BuildStep, BuildSteps } from './steps.js'

/**
 * Features are listed in full so that every host's mke2fs makes the same. No metadata checksums:
 * they cost time under software emulation and guard against nothing in a read-only base image. No journal: a disk is
 * never mounted again after a crash, it goes back to a checkpoint together with the memory. `resize_inode` with room
 * for 1 TiB: the agent makes the file system as large as the sandbox's disk.
 */
const FEATURES = [
  'none', 'resize_inode', 'ext_attr', 'dir_index', 'filetype', 'extent', '64bit', 'flex_bg', 'sparse_super',
  'large_file', 'huge_file', 'dir_nlink', 'extra_isize', 'uninit_bg',
].join(',')

/** $1 root archive, $2 layer. */
const UNPACK_SOURCE = `set -eu
mkdir root
tar --use-compress-program=zstd -xf "$1" --numeric-owner --same-owner --same-permissions --exclude='./dev/*' -C root
tar -C "$2" --owner=0 --group=0 --numeric-owner -cf layer.tar .
tar -C root --same-owner --no-overwrite-dir --keep-directory-symlink -xf layer.tar
mkdir -p root/dev root/proc root/sys root/run root/tmp
shift 2
`
/** $1 an archive that holds the whole tree, made by us of what others sent: nothing else may follow its links. */
const UNPACK_WHOLE = `set -eu
mkdir root
tar -xf "$1" --numeric-owner --same-owner --same-permissions -C root
rm "$1"
for f in modes/*; do [ ! -f "$f" ] || (cd root && xargs -0 chmod "\${f#modes/}" <"../$f"); done
shift
`
/**
 * The inode tables are written now, not by a kernel thread in every guest, and the copy leaves them out as holes.
 * $1 disk file, $2 size in MiB, $3 features.
 */
const FORMAT = `
mke2fs -q -F -t ext4 -b 4096 -I 256 -i 16384 -m 0 -L kosa8 -O "$3" \\
  -E lazy_itable_init=0,resize=268435456,root_owner=0:0 -d root disk "$2M"
if [ -f capabilities ]; then debugfs -w -f capabilities disk >/dev/null; fi
cp --sparse=always disk "$1"; rm disk`

/** Bytes of the disk for each file it can hold; mke2fs's -i above. */
export const BYTES_PER_INODE = 16384

/**
 * Makes the root disk as `file`.
 * @param workFolder folder of this build; the unpacked tree stays in its `root`
 */
export async function buildRootDisk(
  recipe: Recipe, rootArchive: string, file: string, workFolder: string, steps: BuildSteps,
): Promise<void> {
  const layer = path.join(workFolder, 'layer')
  await mkdir(layer)
  for (const item of recipe.npmPackages) {
    await steps.run(`fetch ${item.name} ${item.version}`, (step) => unpackNpmPackage(item, layer, workFolder, step))
  }
  await steps.run('make the root file system', async (step) => {
    await writeLayer(recipe, layer)
    await formatDisk(UNPACK_SOURCE, [rootArchive, layer], { file, disk: recipe.disk, workFolder, step })
  })
}

/** Makes the root disk of an archive that holds the whole tree; the archive is removed on the way. */
export async function buildDiskOfArchive(
  archive: string, disk: Recipe['disk'], file: string, workFolder: string, steps: BuildSteps,
): Promise<void> {
  await steps.run('make the root file system', (step) => formatDisk(UNPACK_WHOLE, [archive], { file, disk, workFolder, step }))
}

async function formatDisk(
  unpack: string, sources: string[], { file, disk, workFolder, step }: { file: string; disk: Recipe['disk']; workFolder: string; step: BuildStep },
): Promise<void> {
  const isRoot = process.getuid?.() === 0
  await step.runProgram(isRoot ? 'sh' : 'fakeroot', [
    ...(isRoot ? [] : ['--', 'sh']), '-c', unpack + FORMAT, 'sh',
    ...sources, file, String(disk.sizeMib), FEATURES,
  ], { cwd: workFolder })
}

async function unpackNpmPackage(item: NpmPackage, layer: string, workFolder: string, step: BuildStep): Promise<void> {
  const folder = path.join(workFolder, 'npm', item.name)
  await makeFolder(folder)
  await step.runProgram('npm', [
    'pack', `${item.name}@${item.version}`, '--pack-destination', folder, '--ignore-scripts', '--loglevel=error',
  ], { cwd: folder })
  const [archive] = (await readdir(folder)).filter((name) => name.endsWith('.tgz'))
  if (archive === undefined) throw new Kosa8Error('IMAGE_BUILD_FAILED', `npm did not fetch ${item.name}`)
  const hash = createHash('sha512')
  await pipeline(createReadStream(path.join(folder, archive)), hash)
  if (`sha512-${hash.digest('base64')}` !== item.integrity) {
    throw new Kosa8Error('IMAGE_BUILD_FAILED', `${item.name} ${item.version} is not what the recipe says: its hash differs`, {
      hint: 'do not use this download; check the registry npm is set up for',
    })
  }
  const target = path.join(layer, item.into)
  await makeFolder(target)
  await step.runProgram('tar', [
    '-xzf', path.join(folder, archive), '--no-same-owner', '--no-same-permissions', '--strip-components=1', '-C', target,
    ...(item.only ?? []).map((name) => `package/${name}`),
  ])
}

async function writeLayer(recipe: Recipe, layer: string): Promise<void> {
  for (const item of recipe.files) {
    const file = path.join(layer, item.path)
    await makeFolder(path.dirname(file))
    await writeFile(file, item.content)
    await chmod(file, item.executable === true ? 0o755 : 0o644)
  }
  for (const item of recipe.links) {
    const file = path.join(layer, item.path)
    await makeFolder(path.dirname(file))
    await symlink(item.target, file)
    // A package may carry its program without the bit; npm sets it when it installs one, so do we.
    const target = path.resolve(path.dirname(file), item.target)
    if (target.startsWith(`${layer}/`) && (await stat(target).catch(() => null))?.isFile() === true) await chmod(target, 0o755)
  }
}

/** Names and versions of the Debian packages in the unpacked tree; empty where there are none. */
export async function readPackages(workFolder: string): Promise<Record<string, string>> {
  const status = await readFile(path.join(workFolder, 'root/var/lib/dpkg/status'), 'utf8').catch(() => '')
  const packages: Record<string, string> = {}
  for (const entry of status.split('\n\n')) {
    const name = /^Package: (.+)$/m.exec(entry)?.[1]
    const version = /^Version: (.+)$/m.exec(entry)?.[1]
    if (name !== undefined && version !== undefined && /^Status: .* installed$/m.test(entry)) packages[name] = version
  }
  return packages
}
