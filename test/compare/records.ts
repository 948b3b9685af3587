/**
 * Builds plans and trial records for tests of `compare` and `report`: plain data with sensible defaults.
 */
import type { RunDocument, RunPlan, TrialRecord } from '../../src/model/run.js'
import { RUN_SCHEMA } from '../../src/model/run.js'
import type { FileChange, TrialDiff } from '../../src/model/diff.js'
import type { TestRun, TestStatus } from '../../src/model/tests.js'
import { compareRun } from '../../src/compare/compare-run.js'

export const RUN = 'r20260101-000000-0a0b0c0d'
const BASE = { commit: 'b'.repeat(40), tree: 'base-tree' }

/** A run of the tests in which each name had a status; exit status 1 if any failed. */
export function testRun(statuses: Record<string, TestStatus>, changes: Partial<TestRun> = {}): TestRun {
  const cases = Object.entries(statuses).map(([name, status]) => ({ name, status, durationMs: 1 }))
  const failed = cases.filter((test) => test.status === 'failed' || test.status === 'errored').length
  return {
    state: 'parsed', verdict: failed > 0 ? 'failed' : 'passed', cases, didNotRun: [], complete: true,
    reason: failed > 0 ? `${failed} of ${cases.length} tests failed` : null,
    exitCode: failed > 0 ? 1 : 0, signal: null, timedOut: false, warnings: [], staleReports: [], ...changes,
  }
}

/** A diff that changed the given paths. */
export function diff(paths: string[], changes: Partial<TrialDiff> = {}): TrialDiff {
  const entries = paths.map((path): FileChange => (
    { status: 'M', path, oldMode: '100644', newMode: '100644', insertions: 2, deletions: 1 }))
  return {
    files: paths.length, insertions: 2 * paths.length, deletions: paths.length, tree: `tree-of-${paths.join('+')}`,
    commit: 'c'.repeat(40), ref: `refs/kosa8/${RUN}/x/1`, patch: 'trials/x/1/patch', changes: entries,
    omitted: [], notes: [], conflicts: [], ...changes,
  }
}

/** What a worker would have stored of a trial. */
export function record(label: string, tests: TestRun | null, changes: Partial<TrialRecord> = {}): TrialRecord {
  const repeat = changes.repeat ?? 1
  return {
    trial: `${RUN}/${label}/${repeat}`, approach: label, label, repeat, parameters: {}, attempt: 1, state: 'completed',
    diff: diff([`src/${label}.js`], { ref: `refs/kosa8/${RUN}/${label}/${repeat}`, patch: `trials/${label}/${repeat}/patch` }),
    tests, ownTests: null, tampered: [], exitCode: 0,
    timingsMs: { wait: 900, clone: 100, identity: 20, strategy: 1500, diff: 80, tests: 640, destroy: 10 },
    memory: { reservedBytes: 200 * 2 ** 20, peakPrivateBytes: 48 * 2 ** 20 },
    usage: { cpuMs: 800, inputTokens: null, outputTokens: null, costUsd: null },
    notes: [], log: null, error: null, ...changes,
  }
}

/** The baseline's record: no change. */
export function baseline(tests: TestRun | null, changes: Partial<TrialRecord> = {}): TrialRecord {
  return record('baseline', tests, { diff: null, ...changes })
}

/** A plan with one approach per label. */
export function plan(labels: string[], changes: Partial<RunPlan> = {}): RunPlan {
  return {
    id: RUN, createdAt: '2026-01-01T00:00:00.000Z', repository: '/home/dev/shop', sandbox: 'shop', sandboxIsOwned: true,
    checkpoint: { id: 'shop-ckpt-1', label: null, pauseMs: 90 }, base: BASE, egress: 'deny',
    approaches: labels.map((label) => (
      { approach: label, label, strategy: { kind: 'builtin' as const, name: 'script' }, parameters: {} })),
    repeats: 1, parallel: null, timeoutMs: 60_000,
    test: { run: 'npm test', results: [], timeoutMs: 60_000, files: [] }, keep: 'none', notes: [], ...changes,
  }
}

/** The document a run with these records ends in. */
export function documentOf(plan: RunPlan, baselines: TrialRecord[], trials: TrialRecord[]): RunDocument {
  return {
    schema: RUN_SCHEMA, id: plan.id, dir: `/home/dev/.kosa8/runs/${plan.id}`, state: 'completed',
    createdAt: plan.createdAt, endedAt: '2026-01-01T00:01:00.000Z', repository: plan.repository, sandbox: plan.sandbox,
    checkpoint: plan.checkpoint, base: plan.base, ...compareRun(plan, baselines, trials), error: null,
  }
}

/** The example of the README: one approach fixes, one fixes and breaks, one edits the test. */
export function threeApproaches(): RunDocument {
  const before = testRun({ 'cart › adds': 'passed', 'cart › totals': 'failed', 'cart › empties': 'passed' })
  return documentOf(plan(['fix', 'rewrite', 'weaken']), [baseline(before)], [
    record('fix', testRun({ 'cart › adds': 'passed', 'cart › totals': 'passed', 'cart › empties': 'passed' }),
      { diff: diff(['src/cart.js'], { ref: `refs/kosa8/${RUN}/fix/1`, patch: 'trials/fix/1/patch' }) }),
    record('rewrite', testRun({ 'cart › adds': 'failed', 'cart › totals': 'passed', 'cart › empties': 'passed' }),
      { diff: diff(['src/cart.js', 'src/total.js'], { ref: `refs/kosa8/${RUN}/rewrite/1`, patch: 'trials/rewrite/1/patch' }) }),
    record('weaken', before, {
      diff: diff(['test/cart.test.js'], { ref: `refs/kosa8/${RUN}/weaken/1`, patch: 'trials/weaken/1/patch' }),
      tampered: ['test/cart.test.js'],
      ownTests: testRun({ 'cart › adds': 'passed', 'cart › totals': 'passed', 'cart › empties': 'passed' }),
    }),
  ])
}
