/**
 * Tools for runs: start one and follow it, read how one stands or ended.
 *
 * Owns: that a run ends when the call that follows it is cancelled, and what of a result is told. Approaches are
 * resolved as on the command line (`sdk/fork-request.ts`).
 */
import { z } from 'zod'
import { Kosa8Error, parseError } from '../errors/kosa8-error.js'
import { egressSchema } from '../model/egress.js'
import { sandboxNameSchema } from '../model/ids.js'
import { keepSchema, type RunDocument, type RunEvent } from '../model/run.js'
import { TIMEOUT_MS_MAX, TRIALS_MAX, runIdSchema, trialSelectorSchema, type RunStatus } from '../protocol/runs.js'
import { cpusSchema, diskMibSchema, imageNameSchema, memoryMibSchema, processesMaxSchema } from '../protocol/sandboxes.js'
import { renderProgressLine } from '../report/progress-line.js'
import { renderReport } from '../report/registry.js'
import { buildRunRequest, type ForkOptions } from '../sdk/fork-request.js'
import { BoundedText, OUTPUT_BYTES_MAX, collectText } from './bounded-text.js'
import { summariseRun, summariseTrial } from './run-summary.js'
import { defineTool, type McpHost, type ToolAnswer, type ToolCall } from './tool.js'

const WAIT_SECONDS_MAX = 3600
/** Names told of each list when one trial is asked for. */
const TRIAL_NAMES_MAX = 200
/** Trials of a run on its way that are told one by one. */
const TRIALS_TOLD_MAX = 300

const forkInput = z.strictObject({
  approaches: z.array(z.string()).min(1).max(TRIALS_MAX)
    .describe('names: entries of `approaches:` in kosa8.yaml, or files .kosa8/approaches/NAME.sh (run in the clone), NAME.patch (applied), NAME.ts or NAME.js'),
  repository: z.string().min(1).max(4096).optional()
    .describe('folder of the git repository on the host, absolute or relative to where the server was started; that folder by default, or the repository of `sandbox`'),
  sandbox: sandboxNameSchema.optional().describe('fork this live sandbox, which goes on running; without it one is made for the run'),
  from: z.string().min(1).max(200).optional().describe('fork this checkpoint of `sandbox` instead, by id or label'),
  setup: z.string().min(1).optional().describe('shell command, run once before the checkpoint, e.g. `npm ci`'),
  test: z.string().min(1).optional().describe('shell command that runs the tests in each clone; kosa8.yaml\'s by default'),
  results: z.array(z.string().min(1)).min(1).optional().describe('globs of report files the tests write (JUnit XML, CTRF, …); without them standard output is read'),
  repeats: z.number().int().min(1).max(100).optional().describe('trials per approach, to see noise'),
  matrix: z.record(z.string(), z.array(z.union([z.string(), z.number(), z.boolean()])).min(1)).optional()
    .describe('parameters: every approach is tried with each value, given to it as an environment variable or parameter'),
  parallel: z.number().int().min(1).max(TRIALS_MAX).optional().describe('trials at once; by default as many as memory allows'),
  timeoutSeconds: z.number().int().min(1).max(TIMEOUT_MS_MAX / 1000).optional().describe('limit of one trial'),
  keep: keepSchema.default('none').describe('clones to keep as sandboxes'),
  uncommitted: z.boolean().default(true).describe('false: uncommitted changes of the repository are left out'),
  image: imageNameSchema.optional().describe('base image of the sandbox made for the run'),
  memoryMib: memoryMibSchema.optional().describe('its memory in MiB'),
  cpus: cpusSchema.optional().describe('its virtual processors'),
  diskMib: diskMibSchema.optional().describe('size of its disk in MiB'),
  processesMax: processesMaxSchema.optional().describe('processes of all its commands together'),
  egress: egressSchema.optional().describe('what it may reach: `deny`, `allow`, or hosts such as `registry.example,*.example.org`'),
  wait: z.boolean().default(true).describe('false: answer with the run\'s id at once; ask fork_result later. Use it when your calls may not take minutes'),
})

const fork = defineTool({
  name: 'fork_run',
  title: 'Try several approaches at once',
  description: 'Forks one checkpoint into a copy-on-write clone per approach, lets each follow its approach, and compares what each changed and '
    + 'what its tests say against a baseline without change. Each approach must exist first: write .kosa8/approaches/NAME.sh or NAME.patch into the '
    + 'repository. Answers when the run has ended, with progress meanwhile; cancelling the call cancels the run, and finished results are kept. '
    + 'The repository\'s files do not change: each result is one commit under refs/kosa8/, so `git show REF` shows it and `git cherry-pick REF` takes it.',
  annotations: { destructiveHint: false },
  input: forkInput,
  run: async (host, input, call) => {
    const { client } = host
    const source = input.sandbox === undefined ? null : await client.sandbox(input.sandbox).describe()
    host.client.refuseIfRemote('startRun')
    const request = await buildRunRequest(forkOptionsOf(input), source, host.cwd)
    const id = await client.runs.start(request)
    call.reportProgress(`run ${id} is started`)
    if (input.wait) await follow(host, id, call, call.signal)
    if (call.signal.aborted) {
      await client.runs.cancel(id, 'the MCP client cancelled the call, or went away')
      throw new Kosa8Error('CANCELLED', `run ${id} was cancelled`, { hint: 'fork_result tells what was finished' })
    }
    return tellRun(await client.runs.get(id))
  },
})

const result = defineTool({
  name: 'fork_result',
  title: 'Result of a run',
  description: 'Tells how a run stands or ended. With `approach`: everything about one trial, its patch included.',
  annotations: { readOnlyHint: true },
  input: z.strictObject({
    run: runIdSchema.optional().describe('id of the run; the newest by default'),
    approach: trialSelectorSchema.optional().describe('label of a trial as the result names it, or label/repeat'),
    waitSeconds: z.number().int().min(0).max(WAIT_SECONDS_MAX).default(0).describe('wait so long for the run to end'),
  }),
  run: async (host, { run, approach, waitSeconds }, call) => {
    const id = run ?? await newestRun(host)
    if (waitSeconds > 0) await follow(host, id, call, AbortSignal.any([call.signal, AbortSignal.timeout(waitSeconds * 1000)]))
    const status = await host.client.runs.get(id)
    return approach === undefined ? tellRun(status) : tellTrial(host, status, approach)
  },
})

function forkOptionsOf(input: z.output<typeof forkInput>): ForkOptions {
  const { repository, memoryMib, diskMib, processesMax, timeoutSeconds, ...same } = input
  const options = {
    ...same, repo: repository, mem: memoryMib, disk: diskMib, pids: processesMax,
    timeout: timeoutSeconds === undefined ? undefined : timeoutSeconds * 1000,
  }
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as unknown as ForkOptions
}

/** Follows a run to its end, or until the signal is aborted. */
async function follow({ client }: McpHost, id: string, call: ToolCall, signal: AbortSignal): Promise<void> {
  const tell = createTeller()
  for await (const event of client.runs.follow(id, { signal })) {
    const line = tell(event)
    if (line !== null) call.reportProgress(line)
  }
}

/** Progress lines that also count the trials that have ended. */
function createTeller(): (event: RunEvent) => string | null {
  let ended = 0
  return (event) => {
    if (event.type === 'trial-end') ended += 1
    const line = renderProgressLine(event)
    return line === null || ended === 0 ? line : `${line} (trials ended: ${ended})`
  }
}

async function newestRun({ client }: McpHost): Promise<string> {
  const [newest] = await client.runs.list()
  if (newest === undefined) throw new Kosa8Error('RUN_UNKNOWN', 'there are no runs yet', { hint: 'start one with fork_run' })
  return newest.id
}

function tellRun(status: RunStatus): ToolAnswer {
  return status.document === null ? tellRunOnItsWay(status) : tellDocument(status.document)
}

function tellRunOnItsWay({ id, phase, trials }: RunStatus): ToolAnswer {
  const told = trials.slice(0, TRIALS_TOLD_MAX)
  const lines = told.map(({ label, repeat, phase: where, message }) => `${label} #${repeat}: ${where}${message === '' ? '' : `: ${message}`}`)
  return {
    text: [`run ${id}: ${phase}`, ...lines, 'ask fork_result for how it ends'].join('\n'),
    content: { run: id, state: phase, trials: told },
  }
}

function tellDocument(document: RunDocument): ToolAnswer {
  const report = cut(renderReport('text', document))
  const refs = document.winner === null ? '' : `\nto take the winner: kosa8 apply ${document.id} ${document.winner}`
  const error = document.error === null ? null : parseError(document.error)
  const reason = error === null ? '' : `${error.code}: ${error.message}\n${error.hint === undefined ? '' : `hint: ${error.hint}\n`}`
  return { text: `${reason}${report}${refs}`, content: summariseRun(document), isError: error !== null }
}

/** One trial in full, with its patch. @throws RUN_ACTIVE while there is no result, USAGE for an unknown trial. */
async function tellTrial({ client }: McpHost, { id, phase, document }: RunStatus, approach: string): Promise<ToolAnswer> {
  if (document === null) throw new Kosa8Error('RUN_ACTIVE', `run ${id} is ${phase}: it has no results yet`, { hint: 'wait for it with waitSeconds' })
  const trial = document.trials.find(({ label, repeat }) => approach === `${label}/${repeat}` || approach === label)
  if (trial === undefined) {
    const labels = [...new Set(document.trials.map(({ label }) => label))]
    throw new Kosa8Error('USAGE', `run ${id} has no trial ${approach}`, { hint: `there are ${labels.join(', ')}` })
  }
  const patch = trial.diff === null ? '' : (await collectText(
    await client.runs.diff(id, `${trial.label}/${trial.repeat}`), new BoundedText(OUTPUT_BYTES_MAX / 2))).toString()
  const summary = summariseTrial(trial, TRIAL_NAMES_MAX)
  return { text: `${JSON.stringify(summary, null, 1)}\n${patch}`, content: { run: id, trial: summary, patch } }
}

function cut(text: string): string {
  const bounded = new BoundedText(OUTPUT_BYTES_MAX / 2)
  bounded.add(Buffer.from(text))
  return bounded.toString()
}

export const RUN_TOOLS = [fork, result]
