/**
 * Keeping the clone of a trial beyond its run: `--keep winner|all`.
 *
 * A clone that may be kept is checkpointed before it is destroyed; once the run is compared, the daemon
 * makes sandboxes of those that are kept and removes the other checkpoints. So nothing holds memory while
 * the other trials still run.
 */
import type { CheckpointCatalog } from '../checkpoint/catalog.js'
import type { CheckpointId, SandboxName } from '../model/ids.js'
import type { RunDocument, RunPlan, TrialRecord } from '../model/run.js'
import type { Sandbox } from '../sandbox/sandbox.js'

/** Name of the sandbox a kept trial becomes: label, repeat and the end of the run's id. */
export function keptName(run: string, label: string, repeat: number): SandboxName {
  const words = label.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-+|-+$/g, '').slice(0, 24) || 'trial'
  return `${words}-${repeat}-${run.slice(-8)}` as SandboxName
}

function keptCheckpoint(name: SandboxName): CheckpointId {
  return `${name}-ckpt-1` as CheckpointId
}

/** Checkpoints the clone of a trial that may be kept. */
export async function keepClone(catalog: CheckpointCatalog, plan: RunPlan, sandbox: Sandbox, record: TrialRecord): Promise<void> {
  const mayBeKept = plan.keep === 'all' || (plan.keep === 'winner' && record.state === 'completed')
  if (!mayBeKept || !plan.approaches.some(({ label }) => label === record.label)) return
  const name = keptName(plan.id, record.label, record.repeat)
  const id = keptCheckpoint(name)
  const origin = await catalog.load(plan.sandbox as SandboxName, plan.checkpoint.id as CheckpointId)
  const directory = await catalog.prepare(name, id)
  try {
    const report = await sandbox.snapshot(directory)
    await catalog.commit({
      id, sandbox: name, label: `end of ${record.label} in run ${plan.id}`, createdAt: new Date().toISOString(),
      image: origin.image, snapshot: report.snapshot, repository: origin.repository,
      parent: { sandbox: origin.sandbox, id: origin.id },
      pauseMs: report.frozenMs, privateBytes: report.privateBytes,
    })
  } catch (error) {
    await catalog.discard(name, id)
    throw error
  }
}

/** The trials whose clones were checkpointed, and whether each is kept now that the run is compared. */
export function decideKept(
  plan: RunPlan, outcome: { trials: readonly Pick<TrialRecord, 'label' | 'repeat'>[]; winner: RunDocument['winner'] },
): { name: SandboxName; label: string; repeat: number; checkpoint: CheckpointId; isKept: boolean }[] {
  if (plan.keep === 'none') return []
  return outcome.trials.map(({ label, repeat }) => {
    const name = keptName(plan.id, label, repeat)
    const isKept = plan.keep === 'all' || (label === outcome.winner && repeat === 1)
    return { name, label, repeat, checkpoint: keptCheckpoint(name), isKept }
  })
}
