/**
 * Builds the real agent and runs it over a socket pair, without a machine: commands are then process
 * groups of this host, and no identity is repaired.
 */
import { createHash } from 'node:crypto'
import { mkdir, mkdtemp, readdir, readFile, rename, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Duplex } from 'node:stream'
import { afterEach, beforeEach } from 'vitest'
import { openGuestSession, type AgentSession } from '../../src/guest/agent-session.js'
import { findPackageRoot } from '../../src/util/package-root.js'
import { runProgram, spawnProgram } from '../../src/util/spawn.js'

const SOURCES = path.resolve(import.meta.dirname, '../../guest/agent')

/** Compiles the agent unless these very sources were compiled before; returns its path. */
export async function buildAgent(): Promise<string> {
  const names = (await readdir(SOURCES)).filter((name) => /\.[ch]$/.test(name)).sort()
  const hash = createHash('sha256')
  for (const name of names) hash.update(name).update(await readFile(path.join(SOURCES, name)))
  const folder = path.join(findPackageRoot(), 'node_modules', '.cache', 'kosa8-agent')
  const file = path.join(folder, hash.digest('hex').slice(0, 16))
  if (await stat(file).then(() => true, () => false)) return file
  await mkdir(folder, { recursive: true })
  const sources = names.filter((name) => name.endsWith('.c')).map((name) => path.join(SOURCES, name))
  const temporary = `${file}.${process.pid}.${Math.random().toString(36).slice(2)}`
  const built = await runProgram('cc', ['-static', '-O2', '-Wall', '-Wextra', '-Werror', '-o', temporary, ...sources])
  if (built.code !== 0) throw new Error(`the agent does not compile:\n${built.stderr.toString()}`)
  await rename(temporary, file)
  return file
}

/** A running agent and the host's end of its channel. */
export interface AgentUnderTest {
  pid: number
  /** A channel like a machine's: destroying it leaves the agent's port open for the next one. */
  openChannel(): Duplex
  /** The bare socket, for tests that write bytes of their own. */
  socket: Duplex
  end(): Promise<void>
}

/** Starts an agent of its own for a test. */
export async function startAgent(extraArgs: string[] = []): Promise<AgentUnderTest> {
  const child = spawnProgram(await buildAgent(), ['--serve-fd', '3', ...extraArgs], {
    stdio: ['ignore', 'ignore', 'inherit', 'pipe'], env: { ...process.env },
  })
  const socket = child.stdio[3] as Duplex
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()))
  return {
    pid: pidOf(child), socket,
    openChannel: () => relayTo(socket),
    end: async () => {
      socket.destroy()
      await ended
    },
  }
}

/** What one test works with. */
export interface AgentBench {
  agent: AgentUnderTest
  /** A test may end it and open another. */
  session: AgentSession
  /** An empty folder on this host, which is the agent's host too. */
  folder: string
}

/** Gives every test of a file an agent, a session and a folder of its own. */
export function useAgent(): AgentBench {
  const bench = {} as AgentBench
  beforeEach(async () => {
    bench.folder = await mkdtemp(path.join(tmpdir(), 'kosa8-agent-'))
    bench.agent = await startAgent()
    bench.session = await openGuestSession(bench.agent.openChannel())
  })
  afterEach(async () => {
    bench.session.end()
    await bench.agent.end()
    await rm(bench.folder, { recursive: true, force: true })
  })
  return bench
}

function pidOf(child: ReturnType<typeof spawnProgram>): number {
  if (child.pid === undefined) throw new Error('the agent did not start')
  return child.pid
}

/** A duplex in front of the socket that can be destroyed without it, backpressure kept both ways. */
function relayTo(socket: Duplex): Duplex {
  const relay: Duplex = new Duplex({
    read: () => void socket.resume(),
    write: (chunk: Buffer, _encoding, callback) => {
      if (socket.write(chunk)) callback()
      else socket.once('drain', () => callback())
    },
    destroy: (error, callback) => {
      socket.off('data', onData)
      callback(error)
    },
  })
  const onData = (chunk: Buffer): void => {
    if (!relay.push(chunk)) socket.pause()
  }
  socket.on('data', onData)
  return relay
}

/** Bytes of memory a process has in use now, and its highest so far. */
export async function readMemory(pid: number): Promise<{ residentBytes: number; peakBytes: number }> {
  const text = await readFile(`/proc/${pid}/status`, 'utf8')
  const read = (key: string): number => Number(new RegExp(`${key}:\\s+(\\d+) kB`).exec(text)?.[1] ?? 0) * 1024
  return { residentBytes: read('VmRSS'), peakBytes: read('VmHWM') }
}
