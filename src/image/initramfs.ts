/**
 * The initial RAM file system: our agent as /init and the kernel modules it loads.
 *
 * Owns: the archive's content and its format (cpio "newc", not compressed: the kernel unpacks it
 * faster than it would decompress it). Written here because only so an ordinary user can put a
 * device node into it. Called by `build.ts`.
 */
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import type { KernelModule } from './kernel-modules.js'

const DIRECTORY = 0o040755
const FILE = 0o100644
const EXECUTABLE = 0o100755
const CHARACTER_DEVICE = 0o020600

interface ArchiveEntry {
  name: string
  mode: number
  content?: Buffer
  device?: { major: number, minor: number }
}

/** Writes the archive: /init, /dev/console, /modules/order (file names, one a line) and the modules. */
export async function writeInitramfs(file: string, agent: string, modules: KernelModule[]): Promise<void> {
  const entries: ArchiveEntry[] = [
    { name: 'dev', mode: DIRECTORY },
    // The kernel opens it as the agent's standard streams before anything is mounted.
    { name: 'dev/console', mode: CHARACTER_DEVICE, device: { major: 5, minor: 1 } },
    { name: 'init', mode: EXECUTABLE, content: await readFile(agent) },
    { name: 'modules', mode: DIRECTORY },
    { name: 'modules/order', mode: FILE, content: Buffer.from(modules.map((m) => `${path.basename(m.file)}\n`).join('')) },
  ]
  for (const module of modules) {
    entries.push({ name: `modules/${path.basename(module.file)}`, mode: FILE, content: await readFile(module.file) })
  }
  await writeFile(file, createArchive(entries))
}

function createArchive(entries: ArchiveEntry[]): Buffer {
  const parts = entries.map((entry, index) => createRecord(entry, index + 1))
  parts.push(createRecord({ name: 'TRAILER!!!', mode: 0 }, 0))
  return Buffer.concat(parts)
}

function createRecord(entry: ArchiveEntry, inode: number): Buffer {
  const content = entry.content ?? Buffer.alloc(0)
  const links = (entry.mode & 0o170000) === 0o040000 ? 2 : 1
  const { major, minor } = entry.device ?? { major: 0, minor: 0 }
  // inode, mode, uid, gid, nlink, mtime, size, device of the file system (2), device (2), length of the name, check
  const fields = [
    inode, entry.mode, 0, 0, links, 0, content.length, 0, 0, major, minor, Buffer.byteLength(entry.name) + 1, 0,
  ]
  const header = `070701${fields.map((field) => field.toString(16).padStart(8, '0')).join('')}${entry.name}\0`
  return Buffer.concat([padToWord(Buffer.from(header)), padToWord(content)])
}

function padToWord(bytes: Buffer): Buffer {
  return Buffer.concat([bytes, Buffer.alloc((4 - (bytes.length % 4)) % 4)])
}
