/** The trials of a run as its plan has them. */
import { BASELINE_LABEL, trialIdOf, type RunId } from '../model/ids.js'
import type { RunPlan } from '../model/run.js'
import type { QueuedTrial } from '../queue/queue.js'

/** Every trial of a plan: the baseline first, since all others are compared with it. */
export function trialsOf(plan: RunPlan): QueuedTrial[] {
  const labels = [...(plan.test === null ? [] : [BASELINE_LABEL]), ...plan.approaches.map(({ label }) => label)]
  return labels.flatMap((label) => Array.from({ length: plan.repeats }, (_, index) => ({
    trial: trialIdOf(plan.id as RunId, label, index + 1), label, repeat: index + 1, isBaseline: label === BASELINE_LABEL,
  })))
}
