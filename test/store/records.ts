/** Small valid records for tests. */
import type { RunId } from '../../src/model/ids.js'
import { RUN_SCHEMA, type RunDocument, type RunPlan, type TrialRecord } from '../../src/model/run.js'

export function aPlan(run: RunId): RunPlan {
  return {
    id: run,
    createdAt: '2026-01-01T00:00:00.000Z',
    repository: '/repo',
    sandbox: 'box',
    sandboxIsOwned: true,
    checkpoint: { id: 'box-ckpt-1', label: null, pauseMs: 12 },
    base: { commit: 'c'.repeat(40), tree: 't'.repeat(40) },
    egress: 'deny',
    approaches: [{ approach: 'a', label: 'a', strategy: { kind: 'builtin', name: 'shell' }, parameters: {} }],
    repeats: 1,
    parallel: null,
    timeoutMs: 60_000,
    test: null,
    keep: 'none',
    notes: [],
  }
}

export function aTrialRecord(run: RunId, change: Partial<TrialRecord> = {}): TrialRecord {
  return {
    trial: `${run}/a/1`,
    approach: 'a',
    label: 'a',
    repeat: 1,
    parameters: {},
    attempt: 1,
    state: 'completed',
    diff: null,
    tests: null,
    ownTests: null,
    tampered: [],
    exitCode: 0,
    timingsMs: {},
    memory: { reservedBytes: null, peakPrivateBytes: null },
    usage: { cpuMs: null, inputTokens: null, outputTokens: null, costUsd: null },
    notes: [],
    log: null,
    error: null,
    ...change,
  }
}

export function aDocument(run: RunId): RunDocument {
  return {
    schema: RUN_SCHEMA,
    id: run,
    dir: '/runs',
    state: 'interrupted',
    createdAt: '2026-01-01T00:00:00.000Z',
    endedAt: '2026-01-01T00:01:00.000Z',
    repository: '/repo',
    sandbox: 'box',
    checkpoint: null,
    base: null,
    baseline: null,
    trials: [],
    ranking: [],
    winner: null,
    reasons: [],
    error: null,
  }
}
