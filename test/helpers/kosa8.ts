/**
 * What a user does with the built product: the command line as a process, signals, and a look at what is left.
 *
 * Owns: one state home in a temporary folder. Everything below it is real: daemon, worker, redis-server, QEMU.
 */
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { Redis } from 'ioredis'
import { readSettings } from '../../src/config/environment.js'
import type { RunId } from '../../src/model/ids.js'
import { runDocumentSchema, type RunDocument, type RunEvent } from '../../src/model/run.js'
import { FileWatch } from '../../src/store/file-watch.js'
import { MachineStore, type MachineRecord } from '../../src/store/machine-store.js'
import { createPaths, type Paths } from '../../src/store/paths.js'
import { RunStore } from '../../src/store/run-store.js'
import { findPackageRoot } from '../../src/util/package-root.js'
import { isProcessAlive, readProcessIdentity, type ProcessIdentity } from '../../src/util/process-identity.js'
import { spawnProgram } from '../../src/util/spawn.js'
import { shell } from './git-fixture.js'

const CLI = path.join(findPackageRoot(), 'dist/src/cli/main.js')
/** Long enough for a machine that does much else; a wait that takes longer has failed. */
const PATIENCE_MS = 100_000

/** How a command line ended. */
export interface Outcome { status: number; stdout: string; stderr: string }

/** A command line that runs. */
export interface Running { process: ChildProcess; ended: Promise<Outcome>; stderrSoFar(): string }

/** One state home and its user. */
export class Kosa8 {
  readonly paths: Paths
  readonly runs: RunStore
  readonly machines: MachineStore
  readonly env: NodeJS.ProcessEnv

  private constructor(readonly folder: string, extra: NodeJS.ProcessEnv) {
    const images = readSettings().imagesDirectory
    this.paths = createPaths(path.join(folder, 'home'), images)
    this.runs = new RunStore(this.paths)
    this.machines = new MachineStore(this.paths)
    this.env = { ...process.env, NO_COLOR: '1', KOSA8_HOME: this.paths.home, KOSA8_IMAGES_DIR: images, ...extra }
  }

  /** @param extra further environment of every command line, and so of the daemon. */
  static async open(extra: NodeJS.ProcessEnv = {}): Promise<Kosa8> {
    return new Kosa8(await mkdtemp('/tmp/kosa8-it-'), extra)
  }

  /** Ends what is left and removes the home. */
  async close(): Promise<void> {
    await this.type(['daemon', 'stop']).catch(() => undefined)
    for (const { pid } of this.processes()) killIfThere(pid)
    await rm(this.folder, { recursive: true, force: true })
  }

  /** A repository with these files and one commit; `.kosa8/approaches/NAME.sh` from `approaches`. */
  async makeRepository(name: string, files: Record<string, string>, approaches: Record<string, string>): Promise<string> {
    const repository = path.join(this.folder, name)
    const scripts = Object.entries(approaches).map(([label, text]) => [`.kosa8/approaches/${label}.sh`, text] as const)
    for (const [file, text] of [...Object.entries(files), ...scripts]) {
      await mkdir(path.dirname(path.join(repository, file)), { recursive: true })
      await writeFile(path.join(repository, file), text)
    }
    shell(repository, `git init -q -b main; git config user.name 'Some User'; git config user.email user@example.invalid
git add -A; git commit -q -m start`)
    return repository
  }

  /** Starts a command line. */
  start(args: string[], options: { cwd?: string; env?: NodeJS.ProcessEnv } = {}): Running {
    const child = spawnProgram(process.execPath, [CLI, ...args], {
      cwd: options.cwd ?? this.folder, env: { ...this.env, ...options.env }, stdio: ['ignore', 'pipe', 'pipe'],
    })
    const output = { stdout: '', stderr: '' }
    for (const name of ['stdout', 'stderr'] as const) {
      child[name]!.setEncoding('utf8').on('data', (text: string) => { output[name] += text })
    }
    const ended = once(child, 'close').then(([code]) => ({ status: code as number, ...output }))
    return { process: child, ended, stderrSoFar: () => output.stderr }
  }

  /** Runs a command line to its end. */
  async type(args: string[], options: { cwd?: string; env?: NodeJS.ProcessEnv } = {}): Promise<Outcome> {
    return this.start(args, options).ended
  }

  /** Runs a command line that must succeed. @returns its standard output */
  async ask(args: string[], options: { cwd?: string } = {}): Promise<string> {
    const { status, stdout, stderr } = await this.type(args, options)
    if (status !== 0) throw new Error(`kosa8 ${args.join(' ')} ended with ${status}: ${stderr}`)
    return stdout
  }

  /** The next run that begins after this call. */
  async nextRun(begin: () => void): Promise<RunId> {
    await mkdir(this.paths.runs, { recursive: true })
    const known = new Set(await readdir(this.paths.runs))
    begin()
    return this.until(this.paths.runs, async () => {
      const fresh = (await readdir(this.paths.runs)).find((name) => !known.has(name)) as RunId | undefined
      return fresh === undefined ? null : await stat(path.join(this.paths.runs, fresh, 'request.json')).then(() => fresh, () => null)
    })
  }

  /** Starts a `fork` and waits until its run is known. */
  async startFork(args: string[], options: { cwd?: string } = {}): Promise<{ run: RunId; fork: Running }> {
    let fork: Running | undefined
    const run = await this.nextRun(() => { fork = this.start(['fork', ...args, '--json'], options) })
    return { run, fork: fork! }
  }

  /** Waits for the first event that matches. */
  async event(run: RunId, matches: (event: RunEvent) => boolean): Promise<RunEvent> {
    for await (const event of this.runs.followEvents(run, 0, AbortSignal.timeout(PATIENCE_MS))) if (matches(event)) return event
    throw new Error(`the event did not come: ${JSON.stringify((await this.runs.readEvents(run)).slice(-5))}`)
  }

  /** Waits until a trial prints a line with this text. */
  async printed(run: RunId, label: string, text: string): Promise<void> {
    await this.event(run, (event) => event.type === 'trial-output' && event.label === label && event.text.includes(text))
  }

  /** The document of a run that has ended. */
  async document(run: RunId): Promise<RunDocument> {
    return runDocumentSchema.parse(await this.runs.readRunDocument(run))
  }

  /** Waits until `look` answers something, looking whenever the folder changes. */
  async until<T>(folder: string, look: () => Promise<T | null>): Promise<T> {
    const watch = new FileWatch(folder, AbortSignal.timeout(PATIENCE_MS))
    try {
      while (await watch.next()) {
        const found = await look()
        if (found !== null) return found
      }
      throw new Error(`nothing came about in ${folder}`)
    } finally {
      watch.close()
    }
  }

  async daemon(): Promise<ProcessIdentity> {
    return readIdentity(this.paths.daemonRecord)
  }

  async worker(): Promise<ProcessIdentity> {
    return readIdentity(this.paths.workerRecord)
  }

  async redis(): Promise<ProcessIdentity> {
    return readIdentity(path.join(this.paths.redis, 'redis.json'))
  }

  /** The machine of a trial or of a sandbox, once its process runs. */
  async machine(matches: (record: MachineRecord) => boolean): Promise<ProcessIdentity> {
    return this.until(path.join(this.paths.home, 'machines'), async () => {
      const handle = (await this.machines.list()).find((record) => record.handle !== null && matches(record))?.handle ?? null
      return handle === null || handle.pid === 0 ? null : { pid: handle.pid, startTicks: handle.pidStartTicks }
    })
  }

  /** Processes of this home: those that name it in their arguments or their environment. */
  processes(): { pid: number; command: string }[] {
    const found: { pid: number; command: string }[] = []
    for (const name of readdirSync('/proc')) {
      if (!/^\d+$/.test(name) || Number(name) === process.pid) continue
      const command = readProc(name, 'cmdline')
      const isOurs = command.includes(this.paths.home) || readProc(name, 'environ').includes(`KOSA8_HOME=${this.paths.home}\0`)
      if (isOurs && readProcessIdentity(Number(name)) !== null) found.push({ pid: Number(name), command: command.replaceAll('\0', ' ').slice(0, 120) })
    }
    return found
  }

  /** Everything that may belong to a run or a machine, empty once both are gone; the daemon must answer. */
  async listLeftovers(): Promise<Record<string, string[]>> {
    const names = async (folder: string): Promise<string[]> => (await readdir(folder).catch(() => [])).sort()
    const sandboxes = await names(this.paths.sandboxes)
    return {
      machines: this.processes().filter(({ command }) => command.includes('qemu')).map(({ command }) => command),
      records: [...await names(path.join(this.paths.home, 'machines')), ...await names(path.join(this.paths.socketRoot, 'machines'))],
      layers: (await names(this.paths.layers)),
      checkpoints: await names(this.paths.checkpoints),
      sandboxes,
      reservations: await names(this.paths.reservations),
      jobs: await this.jobs(),
    }
  }

  /** What is left once the daemon has tidied up behind a run, which it does after the run's end was told. */
  async leftoversOnceTidy(run: RunId): Promise<Record<string, string[]>> {
    await this.until(this.paths.runDirectory(run), async () => (await this.runs.isTidied(run) ? true : null))
    // A reservation that was given back while no daemon was there waits for the next one to notice.
    await this.until(this.paths.reservations, async () => {
      const texts = await Promise.all((await readdir(this.paths.reservations))
        .map((name) => readFile(path.join(this.paths.reservations, name), 'utf8').catch(() => '')))
      return texts.some((text) => text.includes(run)) ? null : true
    })
    return this.listLeftovers()
  }

  /** Redis keys that belong to a run. */
  private async jobs(): Promise<string[]> {
    const client = new Redis({ path: this.paths.redisSocket, lazyConnect: true, retryStrategy: () => null })
    client.on('error', () => undefined)
    try {
      await client.connect()
      return (await client.keys('*')).filter((key) => /\br\d{8}-/.test(decodeURIComponent(key))).sort()
    } catch {
      return []
    } finally {
      client.disconnect()
    }
  }
}

/** Nothing of any run or machine. */
export const NOTHING_LEFT = {
  machines: [], records: [], layers: [], checkpoints: [], sandboxes: [], reservations: [], jobs: [],
}

/** Kills a process as a crash would, and waits until it is gone. */
export async function killHard(identity: ProcessIdentity): Promise<void> {
  process.kill(identity.pid, 'SIGKILL')
  await waitUntilGone(identity)
}

/** Waits until a process has ended. */
export async function waitUntilGone(identity: ProcessIdentity): Promise<void> {
  const deadline = performance.now() + PATIENCE_MS
  while (isProcessAlive(identity)) {
    if (performance.now() > deadline) throw new Error(`process ${identity.pid} does not end`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It has ended by itself.
  }
}

function readProc(pid: string, name: string): string {
  try {
    return readFileSync(`/proc/${pid}/${name}`, 'utf8')
  } catch {
    return ''
  }
}

async function readIdentity(file: string): Promise<ProcessIdentity> {
  const { pid, startTicks } = JSON.parse(await readFile(file, 'utf8')) as ProcessIdentity
  return { pid, startTicks }
}
