/**
 * The pages of guest memory a machine has written, while others share the rest.
 *
 * Owns: finding them in /proc/PID/pagemap and copying them out of /proc/PID/mem. Guest memory is a
 * private mapping of a file, so a page of it is either still the file's (shared by every clone) or a copy
 * of this process's own. Runs with the machine's vCPUs stopped; every millisecond here is pause, so the
 * files are opened and the mapping is looked up before.
 */
import { readSync, writeSync } from 'node:fs'
import { open, readFile, realpath, type FileHandle } from 'node:fs/promises'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { Kosa8Error } from '../../errors/kosa8-error.js'
import { PAGE_BYTES, type Extent } from '../../util/extents.js'

/** Pages copied with one read and one write. */
const CHUNK_PAGES = 256
/** Bytes copied before other work of this process gets a turn: some ten milliseconds. */
const SLICE_BYTES = 16 * 1024 * 1024
/** Entries of the page map read at once. */
const MAP_ENTRIES = 128 * 1024

/** A part of guest memory as it lies in the process. */
interface Mapping {
  address: number
  fileOffset: number
  pageCount: number
}

/** Copies private pages of one process; open it before the pause, close it after. */
export class PrivatePages {
  private readonly chunk = Buffer.alloc(CHUNK_PAGES * PAGE_BYTES)
  private readonly entries = new Uint32Array(2 * MAP_ENTRIES)
  private copiedSinceTurn = 0

  private constructor(
    private readonly mappings: Mapping[],
    private readonly pagemap: FileHandle,
    private readonly memory: FileHandle,
  ) {}

  /**
   * Prepares to read the mapping of `memoryFile` in process `pid`.
   * @throws Kosa8Error CHECKPOINT_FAILED when the mapping is not there in full, or may not be read.
   */
  static async open(pid: number, memoryFile: string, sizeBytes: number): Promise<PrivatePages> {
    const mappings = await findMappings(pid, await realpath(memoryFile))
    const mappedPages = mappings.reduce((sum, mapping) => sum + mapping.pageCount, 0)
    if (mappedPages * PAGE_BYTES !== sizeBytes) {
      throw new Kosa8Error('CHECKPOINT_FAILED', `found ${mappedPages * PAGE_BYTES} of ${sizeBytes} bytes of guest memory`)
    }
    const pagemap = await open(`/proc/${pid}/pagemap`, 'r').catch(refuseAccess)
    const memory = await open(`/proc/${pid}/mem`, 'r').catch(async (cause: unknown) => {
      await pagemap.close()
      return refuseAccess(cause)
    })
    return new PrivatePages(mappings, pagemap, memory)
  }

  /** Bytes of private pages now. */
  countBytes(): number {
    let pages = 0
    for (const mapping of this.mappings) for (const { pageCount } of this.findPrivateRuns(mapping)) pages += pageCount
    return pages * PAGE_BYTES
  }

  /** Writes every private page over its place in `target`; returns where they are. */
  async copyTo(target: FileHandle): Promise<Extent[]> {
    const extents: Extent[] = []
    for (const mapping of this.mappings) {
      for (const run of this.findPrivateRuns(mapping)) {
        this.copyRun(mapping, run, target.fd)
        extents.push({ firstPage: mapping.fileOffset / PAGE_BYTES + run.firstPage, pageCount: run.pageCount })
        if (this.copiedSinceTurn >= SLICE_BYTES) {
          this.copiedSinceTurn = 0
          await nextTurn()
        }
      }
    }
    return extents
  }

  async close(): Promise<void> {
    await Promise.all([this.pagemap.close(), this.memory.close()])
  }

  /** Runs of private pages, counted from the start of the mapping; none longer than a chunk. */
  private *findPrivateRuns({ address, pageCount }: Mapping): Generator<Extent> {
    for (let base = 0; base < pageCount; base += MAP_ENTRIES) {
      const count = Math.min(MAP_ENTRIES, pageCount - base)
      readExactly(this.pagemap.fd, this.entries, count * 8, (address / PAGE_BYTES + base) * 8)
      for (let page = 0; page < count;) {
        const first = page
        while (page < count && page - first < CHUNK_PAGES && isPrivate(this.entries[2 * page + 1])) page++
        if (page > first) yield { firstPage: base + first, pageCount: page - first }
        else page++
      }
    }
  }

  private copyRun({ address, fileOffset }: Mapping, { firstPage, pageCount }: Extent, target: number): void {
    const sizeBytes = pageCount * PAGE_BYTES
    readExactly(this.memory.fd, this.chunk, sizeBytes, address + firstPage * PAGE_BYTES)
    for (let done = 0; done < sizeBytes;) {
      done += writeSync(target, this.chunk, done, sizeBytes - done, fileOffset + firstPage * PAGE_BYTES + done)
    }
    this.copiedSinceTurn += sizeBytes
  }
}

/** Upper half of a page map entry: bit 31 present, bit 30 swapped, bit 29 page of a file or shared. */
function isPrivate(upperHalf = 0): boolean {
  return (upperHalf & 0xc0000000) !== 0 && (upperHalf & 0x20000000) === 0
}

function readExactly(descriptor: number, target: NodeJS.ArrayBufferView, sizeBytes: number, position: number): void {
  for (let done = 0; done < sizeBytes;) {
    const count = readSync(descriptor, target, done, sizeBytes - done, position + done)
    if (count === 0) throw new Kosa8Error('CHECKPOINT_FAILED', 'guest memory ended early')
    done += count
  }
}

async function findMappings(pid: number, memoryFile: string): Promise<Mapping[]> {
  const maps = await readFile(`/proc/${pid}/maps`, 'utf8')
  const name = memoryFile.replaceAll('\n', '\\012')
  return maps.split('\n').flatMap((line) => {
    const match = /^([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) \S+ \d+ +(.*?)(?: \(deleted\))?$/.exec(line)
    if (match === null || match[4] !== name) return []
    const [address, end, fileOffset] = match.slice(1, 4).map((digits) => parseInt(digits, 16)) as [number, number, number]
    return [{ address, fileOffset, pageCount: (end - address) / PAGE_BYTES }]
  })
}

function refuseAccess(cause: unknown): never {
  const { code, message } = cause as NodeJS.ErrnoException
  throw new Kosa8Error('CHECKPOINT_FAILED', `the memory of the machine may not be read: ${message}`, {
    hint: code === 'EACCES' || code === 'EPERM'
      ? 'set the kernel setting kernel.yama.ptrace_scope to 0, or run the daemon that started this machine' : undefined,
    cause,
  })
}
