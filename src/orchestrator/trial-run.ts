/**
 * The life of one trial, from a granted reservation to a durable record:
 *
 *   clone → identity → strategy → diff → tests → record stored → clone destroyed
 *
 * Owns: this order, its set-up and tear-down pairs, and what counts as the approach's result and what as
 * an error of ours. Does not own: the queue, the reservation, the judgement. Called by the trial worker.
 */
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Kosa8Error, serialiseError, toKosa8Error } from '../errors/kosa8-error.js'
import { collectDiff } from '../git/collect.js'
import { EgressProxy } from '../egress/egress-proxy.js'
import { openRepository } from '../git/repository.js'
import { restoreTestFiles, testFilesChanged } from '../git/test-files.js'
import type { MachineSnapshot } from '../hypervisor/driver.js'
import { describeBlocked, parseEgress, type HostProxies } from '../model/egress.js'
import { BASELINE_LABEL, type RunId, type TrialId } from '../model/ids.js'
import type { TrialDiff } from '../model/diff.js'
import type { ApproachPlan, RunPlan, TrialPhase, TrialRecord } from '../model/run.js'
import type { SandboxHost } from '../sandbox/sandbox-host.js'
import type { Sandbox } from '../sandbox/sandbox.js'
import { CleanupStack } from '../util/cleanup.js'
import { countOf } from '../util/count-of.js'
import { describeDiskFull, DISK_MARGIN_BYTES, requireFreeSpace, type DiskNeed } from '../util/disk-space.js'
import { makeFolder } from '../util/make-folder.js'
import { createGuestWorkspace } from './guest-workspace.js'
import { MemoryWatch } from './memory-watch.js'
import { checkParameters, loadStrategy } from './strategy-loader.js'
import { runStrategy, type StrategyEnd } from './strategy-run.js'
import { runTests } from './test-run.js'
import { TrialLog, type LogStream } from './trial-log.js'

/** Tells the outside where a trial is and what it prints. */
export interface TrialReporter {
  phase(phase: TrialPhase, message: string): void
  output(stream: LogStream, text: string): void
}

/** Everything one trial needs. */
export interface TrialRun {
  plan: RunPlan
  trial: TrialId
  label: string
  repeat: number
  /** Fencing number of this attempt. */
  attempt: number
  /** The checkpoint's snapshot, checked by the caller. */
  snapshot: MachineSnapshot
  host: SandboxHost
  /** Proxies of the host, for clones that reach a list of hosts. */
  hostProxies: HostProxies
  /** Folder of this trial's evidence. */
  directory: string
  /** Folder of the run, which paths in the record are relative to. */
  runDirectory: string
  reporter: TrialReporter
  reservedBytes: number
  /** Milliseconds the trial waited for memory. */
  waitedMs: number
  onMemoryPeak: (privateBytes: number) => void
  signal: AbortSignal
  /** Makes the record durable, once; called while the clone still exists. */
  store: (record: TrialRecord) => Promise<void>
  /** Called with the clone after the record is stored, before it is destroyed: to keep it. */
  beforeDestroy?: (sandbox: Sandbox, record: TrialRecord) => Promise<void>
}

/**
 * Runs a trial to its stored record.
 * @throws the reason of `signal`, or an error of ours after which the trial may be tried again; then
 *   nothing was stored and no clone is left.
 */
export async function runTrial(run: TrialRun): Promise<TrialRecord> {
  const cleanup = new CleanupStack()
  await makeFolder(run.directory, 0o700)
  const log = new TrialLog(path.join(run.directory, 'log'), (stream, text) => run.reporter.output(stream, text))
  cleanup.defer('close the log', () => log.close())
  try {
    const record = await runInClone(run, log, cleanup)
    await cleanup.run()
    return record
  } catch (error) {
    await cleanup.run().catch((failure: unknown) => { throw new AggregateError([error, failure], String(error)) })
    throw error
  }
}

async function runInClone(run: TrialRun, log: TrialLog, cleanup: CleanupStack): Promise<TrialRecord> {
  const timings = new PhaseTimings({ wait: run.waitedMs })
  run.reporter.phase('cloning', 'starting a clone of the checkpoint')
  const gateway = createGateway(run, log)
  const sandbox = await run.host.clone({
    snapshot: run.snapshot,
    hostname: hostnameOf(run),
    gateway,
    purpose: { kind: 'trial', run: run.plan.id as RunId, trial: run.trial, attempt: run.attempt },
    signal: run.signal,
  })
  cleanup.defer('destroy the clone', () => run.host.destroy(sandbox))
  timings.add('clone', sandbox.timings.startMs)
  timings.add('identity', sandbox.timings.identityMs)
  const watch = new MemoryWatch(sandbox.machine, run.onMemoryPeak)
  watch.start()
  cleanup.defer('stop the memory watch', () => watch.stop())
  const work = withMachine(sandbox, run.signal)
  const evidence = await collectEvidence(run, sandbox, log, { timings, watch }, work.signal).catch(async (error: unknown) => {
    throw work.lost() ?? (run.signal.aborted ? run.signal.reason : await explainStandstill(run, sandbox, watch, error))
  })
  await watch.stop()
  const blocked = describeBlocked(gateway?.blockedAttempts() ?? [])
  const record: TrialRecord = {
    trial: run.trial, approach: approachOf(run)?.approach ?? BASELINE_LABEL, label: run.label, repeat: run.repeat,
    parameters: approachOf(run)?.parameters ?? {}, attempt: run.attempt,
    ...evidence,
    notes: [...evidence.notes, blocked, log.loss ?? ''].filter((note) => note !== ''),
    timingsMs: timings.values,
    memory: { reservedBytes: run.reservedBytes, peakPrivateBytes: watch.peakPrivateBytes },
    usage: {
      cpuMs: watch.cpuMs,
      inputTokens: evidence.usage?.inputTokens ?? null,
      outputTokens: evidence.usage?.outputTokens ?? null,
      costUsd: evidence.usage?.costUsd ?? null,
    },
    log: path.relative(run.runDirectory, path.join(run.directory, 'log')),
  }
  await run.store(record)
  await run.beforeDestroy?.(sandbox, record)
  return record
}

/** The clone's way out, where its rule is a list of hosts; it ends with the clone's session. */
function createGateway(run: TrialRun, log: TrialLog): EgressProxy | null {
  const rule = parseEgress(run.plan.egress)
  if (rule.kind !== 'hosts') return null
  return new EgressProxy({
    rule, proxies: run.hostProxies,
    advise: (entry) => `To allow it, add ${entry} to egress in kosa8.yaml or --egress`,
    onBlocked: ({ target, reason }) => log.line(`egress: blocked ${target}: ${reason}`),
  })
}

/** What the phases in the clone brought to light. */
type Evidence = Pick<TrialRecord, 'state' | 'diff' | 'tests' | 'ownTests' | 'tampered' | 'exitCode' | 'notes' | 'error'>
  & { usage: StrategyEnd['usage'] }

async function collectEvidence(
  run: TrialRun, sandbox: Sandbox, log: TrialLog, { timings, watch }: { timings: PhaseTimings; watch: MemoryWatch }, signal: AbortSignal,
): Promise<Evidence> {
  const approach = approachOf(run)
  const workspace = createGuestWorkspace(sandbox.session)
  let end: StrategyEnd = { state: 'completed', exitCode: 0, usage: undefined, notes: [] }
  let diff: TrialDiff | null = null
  if (approach !== undefined) {
    run.reporter.phase('strategy', 'the strategy is at work')
    const strategy = await loadStrategy(approach.strategy)
    checkParameters(strategy, approach)
    end = await timings.measure('strategy', () => runStrategy({
      sandbox, approach, repeat: run.repeat, strategy, timeoutMs: run.plan.timeoutMs, log, signal,
    }))
    requireNoStandstill(watch, end.state === 'timedOut')
    run.reporter.phase('collecting', 'collecting what it changed')
    const collected = await timings.measure('diff', () => collectDiffOf(run, workspace, signal))
    if (collected.refused !== null) return refusedEvidence(end, collected.refused)
    diff = collected.diff
  }
  const notes = [...end.notes, ...describeSilence(approach, diff, end, log)]
  const tests = await timings.measure('tests', () => testClone(run, sandbox, workspace, diff, log, signal))
  requireNoStandstill(watch, tests.tests?.timedOut === true || tests.ownTests?.timedOut === true)
  return { ...end, ...tests, diff, notes, error: null }
}

/** A limit that was reached while the machine stood still for lack of room says nothing about the approach. */
function requireNoStandstill(watch: MemoryWatch, reachedLimit: boolean): void {
  if (reachedLimit && watch.waitedForDisk) throw new Kosa8Error('TIMED_OUT', 'a limit was reached while the machine waited for room on the disk')
}

/** A guest that stands still for lack of room does not answer; the room is what is to be told of. */
async function explainStandstill(run: TrialRun, sandbox: Sandbox, watch: MemoryWatch, thrown: unknown): Promise<unknown> {
  const isSilence = ['TIMED_OUT', 'GUEST_UNREACHABLE', 'GUEST_COMMAND_FAILED'].includes(toKosa8Error(thrown).code)
  return isSilence && watch.waitedForDisk ? describeDiskFull(needOf(run, sandbox.machine.handle.layersDirectory), thrown) : thrown
}

/** What a trial that found no room is told with. */
function needOf(run: TrialRun, folder: string): DiskNeed {
  return {
    what: `trial ${run.label}/${run.repeat}`, folder, neededBytes: DISK_MARGIN_BYTES, isLeast: true, kept: 'the results of the others are kept',
  }
}

/** Evidence the guest spoiled is the approach's own result, not an error of ours. */
function refusedEvidence(end: StrategyEnd, error: Kosa8Error): Evidence {
  return {
    state: 'failed', exitCode: end.exitCode, usage: end.usage, diff: null, tests: null, ownTests: null, tampered: [],
    notes: [...end.notes, `its changes could not be collected: ${error.message}`], error: serialiseError(error),
  }
}

async function collectDiffOf(
  run: TrialRun, workspace: ReturnType<typeof createGuestWorkspace>, signal: AbortSignal,
): Promise<{ diff: TrialDiff | null; refused: Kosa8Error | null }> {
  try {
    const patchFile = path.join(run.directory, 'patch')
    const diff = await collectDiff(workspace, await openRepository(run.plan.repository), run.plan.base, {
      run: run.plan.id, approach: approachOf(run)?.approach ?? run.label, label: run.label, repeat: run.repeat,
      patchFile, patch: path.relative(run.runDirectory, patchFile), signal,
    })
    return { diff, refused: null }
  } catch (error) {
    signal.throwIfAborted()
    if (!Kosa8Error.isInstance(error) || error.code !== 'EVIDENCE_REFUSED') throw error
    // What git refuses where it has no room to work says nothing about the approach.
    for (const folder of [run.directory, tmpdir(), run.plan.repository]) await requireFreeSpace(needOf(run, folder))
    return { diff: null, refused: error }
  }
}

async function testClone(
  run: TrialRun, sandbox: Sandbox, workspace: ReturnType<typeof createGuestWorkspace>,
  diff: TrialDiff | null, log: TrialLog, signal: AbortSignal,
): Promise<Pick<TrialRecord, 'tests' | 'ownTests' | 'tampered'>> {
  const plan = run.plan.test
  if (plan === null) return { tests: null, ownTests: null, tampered: [] }
  run.reporter.phase('testing', plan.run)
  const touched = testFilesChanged(diff?.changes ?? [], { globs: plan.files, testCommand: plan.run })
  const tampered = [...touched.changed, ...touched.addedConfigs]
  const first = await runTests(sandbox, plan, log, signal)
  if (tampered.length === 0) return { tests: first, ownTests: null, tampered }
  log.line(`the approach changed ${countOf(tampered.length, 'test file')}; testing again with the original ones`)
  run.reporter.phase('testing', 'again, with the original test files')
  await restoreTestFiles(workspace, run.plan.base, touched, signal)
  return { tests: await runTests(sandbox, plan, log, signal), ownTests: first, tampered }
}

/** A strategy that changed nothing has not answered the question, whatever its exit status says. */
function describeSilence(approach: ApproachPlan | undefined, diff: TrialDiff | null, end: StrategyEnd, log: TrialLog): string[] {
  if (approach === undefined || diff === null || diff.files > 0) return []
  const lastLine = log.lastLine().slice(-200)
  const asks = /(\?|:|\[y\/n\]|\(yes\/no\)|password|no answer|no terminal)\s*\)?\s*$/i.test(lastLine)
  if (asks) return [`asked for input: ${lastLine}`]
  return end.state === 'timedOut' ? [] : ['ended without changes']
}

function approachOf(run: TrialRun): ApproachPlan | undefined {
  return run.plan.approaches.find((approach) => approach.label === run.label)
}

/** Host names hold letters, digits and dashes, at most 63 of them. */
function hostnameOf(run: TrialRun): string {
  const label = run.label.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-+|-+$/g, '').slice(0, 40)
  return `${label || 'clone'}-${run.repeat}`
}

/** Aborts the work when the machine is lost under it, so that nothing waits for an answer that cannot come. */
function withMachine(sandbox: Sandbox, signal: AbortSignal): { signal: AbortSignal; lost: () => Kosa8Error | null } {
  const lost = new AbortController()
  let error: Kosa8Error | null = null
  void sandbox.machine.exited.then((exit) => {
    if (exit.expected) return
    error = new Kosa8Error('MACHINE_GONE', `the machine of the trial ended: ${exit.message}`, { hint: 'the trial is tried again' })
    lost.abort(error)
  })
  return { signal: AbortSignal.any([signal, lost.signal]), lost: () => error }
}

/** Milliseconds per phase. */
class PhaseTimings {
  constructor(readonly values: Record<string, number>) {}

  add(phase: string, ms: number): void {
    this.values[phase] = Math.round(((this.values[phase] ?? 0) + ms) * 10) / 10
  }

  async measure<T>(phase: string, work: () => Promise<T>): Promise<T> {
    const startedAt = performance.now()
    try {
      return await work()
    } finally {
      this.add(phase, performance.now() - startedAt)
    }
  }
}
