/** Result documents of runs as tests of the CLI need them. */
import type { RunDocument, TrialResult } from '../../src/model/run.js'
import { RUN_ID } from '../daemon-server/memory-services.js'

const COUNTS = { total: 3, passed: 3, failed: 0, skipped: 0, errored: 0 }

export function trialResult(overrides: Partial<TrialResult> = {}): TrialResult {
  return {
    approach: 'a', label: 'a', repeat: 1, parameters: {}, state: 'completed', verdict: 'better', reasons: ['fixed 1 test'],
    diff: {
      files: 1, insertions: 2, deletions: 1, tree: 't'.repeat(40), commit: 'c'.repeat(40), ref: `refs/kosa8/${RUN_ID}/a/1`,
      patch: 'trials/a/1/patch', changes: [], omitted: [], notes: [], conflicts: [],
    },
    tests: {
      ...COUNTS, state: 'parsed', verdict: 'passed', reason: null, complete: true, didNotRun: [], fixed: ['s › one'], regressed: [], stillFailing: [],
      missing: [], added: [], flaky: [], tampered: [], warnings: [], staleReports: [],
    },
    exitCode: 0, timingsMs: { strategy: 1000 }, memory: { reservedBytes: 1, peakPrivateBytes: 1 },
    usage: { cpuMs: null, inputTokens: null, outputTokens: null, costUsd: null }, notes: [], log: 'trials/a/1/log', error: null, ...overrides,
  }
}

export function runDocument(overrides: Partial<RunDocument> = {}): RunDocument {
  return {
    schema: 'kosa8.run/1', id: RUN_ID, dir: '/runs/1', state: 'completed', createdAt: '2026-01-02T03:04:05.000Z', endedAt: '2026-01-02T03:05:05.000Z',
    repository: '/repo', sandbox: 'run-1', checkpoint: { id: 'run-1-ckpt-1', label: null, pauseMs: 40 }, base: { commit: 'b'.repeat(40), tree: 'e'.repeat(40) },
    baseline: {
      tests: { ...COUNTS, passed: 2, failed: 1, state: 'parsed', verdict: 'failed', reason: null, failing: ['s › one'], flaky: [], warnings: [] },
      timingsMs: {}, error: null,
    },
    trials: [trialResult()], ranking: ['a'], winner: 'a', reasons: ['a fixed the most'], error: null, ...overrides,
  }
}
