/**
 * From a request to a plan: the repository in a guest, set up once, and a checkpoint to fork from.
 *
 *   own sandbox:   boot → upload → setup → base → checkpoint → machine ended (the checkpoint is all a run needs)
 *   live sandbox:  checkpoint in place → base read in a clone of it; the sandbox goes on
 *   --from:        stored checkpoint, checked in full → base read in a clone of it
 *
 * Owns: this order and undoing what was made when it fails. Called by the daemon's run service.
 */
import { Kosa8Error, toKosa8Error } from '../errors/kosa8-error.js'
import { prepareBase, type PreparedBase } from '../git/base.js'
import { captureBase } from '../git/capture.js'
import { installWorkspace, type InstallProgress } from '../git/install.js'
import { packBase } from '../git/pack.js'
import { openRepository, type Repository } from '../git/repository.js'
import { runInGuest } from '../guest/run-in-guest.js'
import { describeBlocked } from '../model/egress.js'
import type { CheckpointId, RunId, SandboxName } from '../model/ids.js'
import type { Base, RunPlan } from '../model/run.js'
import type { RunRequest } from '../protocol/runs.js'
import type { Sandbox } from '../sandbox/sandbox.js'
import { CleanupStack } from '../util/cleanup.js'
import { requireFreeSpace } from '../util/disk-space.js'
import { createGuestWorkspace, exitStatusOf, WORKSPACE_PATH } from './guest-workspace.js'
import { START_DISK_BYTES, tellBoot, type Sandboxes } from './sandboxes.js'
import { unattendedEnvironment } from './strategy-run.js'

const MIB = 1024 * 1024
/** No machine that has booted was seen with less memory of its own; with 256 MiB and the image `base` it is about 120 MiB. */
const BOOTED_BYTES_MIN = 64 * MIB
const SETUP_TIMEOUT_MS = 60 * 60_000
const SETUP_OUTPUT_BYTES = 64 * 1024
/** What putting a repository in and reading it back runs in the guest; busybox has find, head and grep without what is used. */
const WORKSPACE_TOOLS = ['git', 'mkdir', 'ln', 'cp', 'rm', 'GNU find', 'GNU head', 'GNU grep']
const FIND_MISSING = `
for p in git mkdir ln cp rm; do command -v $p || echo "missing $p"; done
find / -maxdepth 0 -printf . || echo 'missing GNU find'
head -z -n 1 </dev/null || echo 'missing GNU head'
echo x | grep -z x || echo 'missing GNU grep'
`

/** What a preparation works with. */
export interface Preparation {
  id: RunId
  createdAt: string
  request: RunRequest
  sandboxes: Sandboxes
  /** One line per step. */
  onProgress: (message: string) => void
  signal: AbortSignal
}

/** Where trials start from. */
type Start = Pick<RunPlan, 'sandbox' | 'sandboxIsOwned' | 'egress' | 'checkpoint' | 'base' | 'notes'>

/**
 * The least a run writes, and of a machine of its own what the checkpoint of one that has only just booted has; a repository and its
 * set-up come on top.
 * @throws DISK_FULL before anything is begun
 */
export async function requireRoomForRun(home: string, machine: RunRequest['machine']): Promise<void> {
  const checkpointBytes = machine === null ? 0 : Math.min(BOOTED_BYTES_MIN, machine.memoryMib * MIB / 4)
  await requireFreeSpace({
    what: 'a run', folder: home, neededBytes: START_DISK_BYTES + checkpointBytes, isLeast: true, kept: 'nothing was begun',
  })
}

/** @throws whatever went wrong; then nothing of the run is left but what the store knows. */
export async function prepareRun(preparation: Preparation): Promise<RunPlan> {
  const { request, signal } = preparation
  const repository = await openRepository(request.repository)
  signal.throwIfAborted()
  const cleanup = new CleanupStack()
  try {
    const start = request.sandbox === null
      ? await startFromRepository(preparation, repository, cleanup)
      : await startFromSandbox(preparation, request.sandbox, repository)
    signal.throwIfAborted()
    return {
      id: preparation.id, createdAt: preparation.createdAt, repository: repository.topLevel, ...start,
      approaches: request.approaches, repeats: request.repeats, parallel: request.parallel,
      timeoutMs: request.timeoutMs, test: request.test, keep: request.keep,
    }
  } catch (error) {
    await cleanup.run().catch((failure: unknown) => { throw new AggregateError([error, failure], String(error)) })
    throw error
  }
}

async function startFromRepository(preparation: Preparation, repository: Repository, cleanup: CleanupStack): Promise<Start> {
  const { request, sandboxes, signal, onProgress } = preparation
  const machine = request.machine
  if (machine === null) throw new Kosa8Error('USAGE', 'a run without a sandbox needs a machine')
  onProgress('reading the repository')
  const prepared = await prepareBase(repository, { includeUncommitted: request.includeUncommitted, signal })
  const name = `run-${preparation.id.slice(-8)}` as SandboxName
  cleanup.defer('remove the run\'s sandbox', () => sandboxes.delete(name))
  onProgress(tellBoot(machine))
  const sandbox = await sandboxes.create({
    name, image: machine.image, memoryMib: machine.memoryMib, cpus: machine.cpus, egress: machine.egress,
    diskMib: machine.diskMib, processesMax: machine.processesMax,
    ownedByRun: preparation.id, signal, onWait: (message) => onProgress(`waiting for memory: ${message}`),
  })
  const { base, notes } = await fillSandbox(preparation, sandbox, repository, prepared)
  signal.throwIfAborted()
  onProgress('taking the checkpoint')
  const checkpoint = await sandboxes.checkpoints.take(name, {
    label: `run ${preparation.id}`, repository: { hostPath: repository.topLevel, path: WORKSPACE_PATH, base },
  })
  await sandboxes.machines.end(name)
  return {
    sandbox: name, sandboxIsOwned: true, egress: machine.egress, base,
    notes: [...prepared.notes, ...tellBlocked(sandboxes, name), ...notes],
    checkpoint: { id: checkpoint.id, label: checkpoint.label, pauseMs: checkpoint.pauseMs },
  }
}

/** Puts the repository in, runs `setup`, and reads what the trials start from. */
async function fillSandbox(
  preparation: Preparation, sandbox: Sandbox, repository: Repository, prepared: PreparedBase,
): Promise<{ base: Base; notes: string[] }> {
  const { request, signal } = preparation
  await uploadRepository(preparation, sandbox, repository, prepared)
  if (request.setup !== null) await runSetup(preparation, sandbox, request.setup)
  preparation.onProgress('recording the base')
  return captureBase(createGuestWorkspace(sandbox.session), repository, prepared.base, { run: preparation.id, signal })
}

/** Who is told how an upload goes on, one line per step, and may end it. */
export type UploadReport = Pick<Preparation, 'onProgress' | 'signal'>

/** Sends the repository's objects and lays out the working tree in the guest. */
export async function uploadRepository(
  { onProgress, signal }: UploadReport, sandbox: Sandbox, repository: Repository, prepared: PreparedBase,
): Promise<void> {
  await requireTools(sandbox)
  const pack = await packBase(repository, prepared, { signal })
  try {
    const progress = createUploadProgress(onProgress)
    await installWorkspace(createGuestWorkspace(sandbox.session), prepared, pack, { onProgress: progress, signal })
  } finally {
    await pack.dispose()
  }
}

/** An imported image may have nothing but the one program it was made for. @throws IMAGE_UNSUITABLE */
async function requireTools(sandbox: Sandbox): Promise<void> {
  const missing = await runInGuest(sandbox.session, { argv: ['/bin/sh', '-c', FIND_MISSING] })
    .then(({ stdout }) => WORKSPACE_TOOLS.filter((name) => stdout.toString('utf8').split('\n').includes(`missing ${name}`)),
      (error: unknown) => {
        if (toKosa8Error(error).code === 'GUEST_COMMAND_FAILED') return ['sh']
        throw error
      })
  if (missing.length === 0) return
  throw new Kosa8Error('IMAGE_UNSUITABLE', `the image has no ${missing.join(', ')}: no repository can be put into its machines`, {
    hint: 'add it to the container image (on Alpine: apk add git findutils coreutils grep) and import it again, or use another image', details: { missing },
  })
}

/** A line per tenth of what takes long, and none at all for what is there in a moment. */
function createUploadProgress(onProgress: (message: string) => void): (progress: InstallProgress) => void {
  onProgress('uploading the repository')
  const shown = { sending: 0, checkingOut: 0 }
  return (progress) => {
    const { part } = progress
    if (part === 'sending' && progress.totalBytes < 8 * 1024 * 1024) return
    const tenth = Math.floor(part === 'sending' ? (progress.sentBytes / progress.totalBytes) * 10 : progress.percent / 10)
    if (tenth <= shown[part]) return
    shown[part] = tenth
    onProgress(part === 'sending'
      ? `uploading the repository: ${tenth * 10} % of ${Math.round(progress.totalBytes / 1024 / 1024)} MiB`
      : `laying out its files: ${tenth * 10} %`)
  }
}

async function runSetup(preparation: Preparation, sandbox: Sandbox, setup: string): Promise<void> {
  preparation.onProgress(`setup: ${setup.split('\n')[0]?.slice(0, 200)}`)
  const result = await runInGuest(sandbox.session, {
    argv: ['/bin/sh', '-c', setup], cwd: WORKSPACE_PATH, env: unattendedEnvironment(sandbox),
  }, { outputBytesMax: SETUP_OUTPUT_BYTES, keep: 'tail', timeoutMs: SETUP_TIMEOUT_MS, signal: preparation.signal })
  const status = exitStatusOf(result.exit)
  if (status === 0 && !result.timedOut) return
  const output = Buffer.concat([result.stdout, result.stderr]).toString('utf8').replace(/[^\x20-\x7e\n]/g, '').trimEnd().split('\n').slice(-12)
  const blocked = tellBlocked(preparation.sandboxes, sandbox.hostname as SandboxName)
  const what = result.timedOut ? `did not end within ${SETUP_TIMEOUT_MS / 60_000} minutes` : `ended with status ${status}`
  throw new Kosa8Error('SETUP_COMMAND_FAILED', `the setup command ${what}: ${setup.split('\n')[0]?.slice(0, 200)}`, {
    hint: `${blocked.map((line) => `${line}; `).join('')}its last output: ${output.join(' | ').slice(-1500) || '(none)'}`,
    details: { status, output },
  })
}

/** What the set-up tried to reach and was not to; nothing or one line. */
function tellBlocked(sandboxes: Sandboxes, name: SandboxName): string[] {
  const line = describeBlocked(sandboxes.blockedOf(name))
  return line === '' ? [] : [`set-up ${line}`]
}

async function startFromSandbox(preparation: Preparation, name: SandboxName, repository: Repository): Promise<Start> {
  const { request, sandboxes, onProgress, signal } = preparation
  const installed = (await sandboxes.repositoryOf(name)).base
  const { egress } = await sandboxes.read(name)
  let taken: { id: string; label: string | null; pauseMs: number | null }
  if (request.from === null) {
    onProgress(`taking a checkpoint of ${name} while it runs`)
    taken = await sandboxes.checkpoints.take(name, { label: `run ${preparation.id}` })
  } else {
    onProgress(`checking checkpoint ${request.from}`)
    const found = await sandboxes.checkpoints.find(name, request.from, { verify: true })
    taken = { id: found.id, label: found.label, pauseMs: null }
  }
  onProgress('recording the base')
  const captured = await sandboxes.checkpoints.withClone(name, taken.id as CheckpointId, signal, (clone) => captureBase(
    createGuestWorkspace(clone.session), repository, installed, { run: preparation.id, signal }))
  return { sandbox: name, sandboxIsOwned: false, egress, checkpoint: taken, ...captured }
}
