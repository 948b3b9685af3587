/**
 * Sandboxes and their snapshots as the daemon's HTTP interface offers them.
 *
 * Owns: translating between the wire and `orchestrator/sandboxes.ts`; nothing is decided here.
 */
import path from 'node:path'
import type { Readable } from 'node:stream'
import type { CheckpointManifest } from '../checkpoint/manifest.js'
import { Kosa8Error, serialiseError } from '../errors/kosa8-error.js'
import { prepareBase } from '../git/base.js'
import { openRepository, type Repository } from '../git/repository.js'
import { followLinks } from '../guest/follow-links.js'
import type { GuestProcess } from '../guest/session.js'
import type { MachineInspection } from '../hypervisor/driver.js'
import type { CheckpointId, SandboxName } from '../model/ids.js'
import { networkEnvironment } from '../orchestrator/host-certificates.js'
import { unattendedEnvironment } from '../orchestrator/strategy-run.js'
import { WORKSPACE_PATH } from '../orchestrator/guest-workspace.js'
import { uploadRepository, type UploadReport } from '../orchestrator/run-preparation.js'
import type { SandboxRepository } from '../orchestrator/sandbox-parts.js'
import type { Sandboxes } from '../orchestrator/sandboxes.js'
import type {
  CreateSandboxRequest, CreateSnapshotRequest, ExecRequest, ForkedSandboxEntry, RestoredSandbox, SandboxDescription,
  SnapshotDescription,
} from '../protocol/sandboxes.js'
import { SANDBOX_FILE_BYTES_MAX } from '../protocol/sandboxes.js'
import type { Sandbox } from '../sandbox/sandbox.js'
import type { SandboxRecord } from '../store/sandbox-store.js'
import { fingerprintOf, normalisePublicKey } from '../util/ed25519.js'
import type { SandboxService } from './services.js'

/** Implements the sandboxes of the daemon's HTTP interface. */
export class SandboxCalls implements SandboxService {
  constructor(private readonly sandboxes: Sandboxes) {}

  async create(request: CreateSandboxRequest, signal: AbortSignal): Promise<SandboxDescription> {
    const { name, approvals, ...machine } = request
    const repository = request.repository === undefined ? null : await openRepository(request.repository)
    const key = approvals === undefined ? {} : { approvals: normalisePublicKey(approvals) }
    const content = repository === null ? {} : { fill: (sandbox: Sandbox, onProgress: (step: string) => void) => fill(sandbox, repository, { onProgress, signal }) }
    await this.sandboxes.create({ ...machine, name, ...key, ...content, signal })
    return this.get(name)
  }

  async list(): Promise<SandboxDescription[]> {
    return Promise.all((await this.sandboxes.list()).filter(({ ownedByRun }) => ownedByRun === null).map((record) => this.describe(record)))
  }

  async get(name: string): Promise<SandboxDescription> {
    return this.describe(await this.sandboxes.read(name as SandboxName))
  }

  async delete(name: string): Promise<void> {
    await this.sandboxes.read(name as SandboxName)
    await this.sandboxes.delete(name as SandboxName)
  }

  async setEgress(name: string, egress: string): Promise<SandboxDescription> {
    await this.sandboxes.setEgress(name as SandboxName, egress)
    return this.get(name)
  }

  async exec(name: string, request: ExecRequest): Promise<GuestProcess> {
    const sandbox = await this.sandboxes.machines.of(name as SandboxName)
    const { repository, workingDirectory } = await this.sandboxes.read(name as SandboxName)
    const unattended = request.pty === undefined ? unattendedEnvironment(sandbox) : networkEnvironment(sandbox)
    return sandbox.session.exec({
      ...request, env: { ...unattended, ...request.env }, cwd: request.cwd ?? (repository === null ? workingDirectory ?? '/root' : WORKSPACE_PATH),
    })
  }

  async readFile(name: string, file: string): Promise<Readable> {
    const { session } = await this.sandboxes.machines.of(name as SandboxName)
    return followLinks(session, resolveGuestPath(file), (place) => session.readFile(place, { bytesMax: SANDBOX_FILE_BYTES_MAX }))
  }

  async writeFile(name: string, file: string, content: Readable, mode: number | undefined): Promise<void> {
    const { session } = await this.sandboxes.machines.of(name as SandboxName)
    // The file itself is replaced, also where it is a link; the folders before it may be links.
    const { dir, base } = path.posix.parse(resolveGuestPath(file))
    await followLinks(session, dir, (folder) => session.writeFile(path.posix.join(folder, base), content, mode === undefined ? {} : { mode }))
  }

  async fork(name: string, names: string[]): Promise<ForkedSandboxEntry[]> {
    const made = await this.sandboxes.fork(name as SandboxName, names as SandboxName[])
    return made.map((clone) => ({ name: clone.name, error: clone.error === null ? null : serialiseError(clone.error) }))
  }

  async snapshot(name: string, { id, label }: CreateSnapshotRequest): Promise<SnapshotDescription> {
    const wanted = { label: label ?? null, ...(id === undefined ? {} : { id: id as CheckpointId }) }
    const taken = await this.sandboxes.checkpoints.take(name as SandboxName, wanted)
    return describeSnapshot(taken.manifest)
  }

  async snapshots(name: string): Promise<SnapshotDescription[]> {
    await this.sandboxes.read(name as SandboxName)
    return (await this.sandboxes.checkpoints.list(name as SandboxName)).map(describeSnapshot)
  }

  async deleteSnapshot(name: string, id: string): Promise<void> {
    if (await this.sandboxes.checkpoints.remove(name as SandboxName, id as CheckpointId)) return
    throw new Kosa8Error('CHECKPOINT_UNKNOWN', `sandbox ${name} has no checkpoint ${id}`, { hint: `list them with: kosa8 checkpoint ls ${name}` })
  }

  async restore(name: string, snapshot: string): Promise<RestoredSandbox> {
    const { manifest, restoreMs } = await this.sandboxes.restore(name as SandboxName, snapshot as CheckpointId)
    return { snapshot: describeSnapshot(manifest), restoreMs }
  }

  private async describe(record: SandboxRecord): Promise<SandboxDescription> {
    const machine = this.sandboxes.machines.find(record.name)?.machine
    const measured = await machine?.inspect().catch(() => null)
    const state = measured === undefined || measured === null ? this.sandboxes.machines.stateOf(record.name) : stateOf(measured)
    return {
      name: record.name, image: record.image, memoryMib: record.shape.memoryMib, cpus: record.shape.cpus,
      egress: record.egress, blocked: this.sandboxes.blockedOf(record.name),
      diskMib: record.shape.diskMib, processesMax: record.shape.processesMax,
      state, step: this.sandboxes.machines.stepOf(record.name), createdAt: record.createdAt, repository: record.repository?.hostPath ?? null,
      approvals: record.approvals === null ? null : fingerprintOf(record.approvals), privateBytes: measured?.privateBytes ?? null,
    }
  }
}

function stateOf({ isRunning, waitsForDisk }: MachineInspection): SandboxDescription['state'] {
  if (isRunning) return 'running'
  return waitsForDisk ? 'disk-full' : 'paused'
}

/** Puts a repository into the workspace: its commits, and what is not committed yet. */
async function fill(sandbox: Sandbox, repository: Repository, report: UploadReport): Promise<SandboxRepository> {
  const prepared = await prepareBase(repository, { includeUncommitted: true, signal: report.signal })
  await uploadRepository(report, sandbox, repository, prepared)
  return { hostPath: repository.topLevel, path: WORKSPACE_PATH, base: prepared.base }
}

function resolveGuestPath(file: string): string {
  return path.posix.resolve(WORKSPACE_PATH, file)
}

function describeSnapshot(manifest: CheckpointManifest): SnapshotDescription {
  return {
    id: manifest.id, sandbox: manifest.sandbox, label: manifest.label, createdAt: manifest.createdAt, parent: manifest.parent?.id ?? null,
    pauseMs: manifest.pauseMs, sizeBytes: manifest.files.reduce((sum, file) => sum + file.sizeBytes, 0),
  }
}
