/**
 * The tool that runs a command in a sandbox.
 *
 * Owns: that a command ends in time, and that its output fits an agent's context: the beginning and the end of
 * each stream are kept, and a command that prints more goes on undisturbed.
 */
import { z } from 'zod'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { sandboxNameSchema } from '../model/ids.js'
import type { ExecExit, ExecRequest } from '../protocol/sandboxes.js'
import type { SandboxProcess } from '../sdk/exec.js'
import { createDeferred } from '../util/deferred.js'
import { BoundedText, OUTPUT_BYTES_MAX, collectText } from './bounded-text.js'
import { defineTool, type ToolAnswer } from './tool.js'

const TIMEOUT_SECONDS_DEFAULT = 120
const TIMEOUT_SECONDS_MAX = 3600
/** Most bytes kept of each stream: both together fill an answer. */
const STREAM_BYTES_MAX = OUTPUT_BYTES_MAX / 2

const input = z.strictObject({
  name: sandboxNameSchema.describe('name of the sandbox'),
  command: z.string().min(1).max(128 * 1024).describe('shell command, given to `sh -c`; quote as in a shell'),
  cwd: z.string().min(1).max(4096).optional().describe('folder to run in; /workspace when the sandbox has a repository, else /root'),
  env: z.record(z.string().regex(/^[^=\0]+$/), z.string()).optional().describe('further environment variables'),
  user: z.string().min(1).max(64).optional().describe('user to run as; root by default'),
  stdin: z.string().optional().describe('text for its standard input; empty by default'),
  timeoutSeconds: z.number().int().min(1).max(TIMEOUT_SECONDS_MAX).default(TIMEOUT_SECONDS_DEFAULT).describe('after this the command is killed'),
})

export const execTool = defineTool({
  name: 'sandbox_exec',
  title: 'Run a command in a sandbox',
  description: 'Runs a shell command in a sandbox to its end and answers with exit code, standard output and standard error '
    + `(of each at most ${STREAM_BYTES_MAX / 1024} KiB: beginning and end). It has no terminal and cannot ask questions. `
    + 'A command that fails is no error of the tool: look at exitCode. Start what is to go on running in the background with '
    + '`setsid COMMAND >LOG 2>&1 </dev/null &`; it lives on until the sandbox goes, checkpoints and rewinds included.',
  annotations: { destructiveHint: true },
  input,
  run: async ({ client }, { name, command, stdin, timeoutSeconds, ...wanted }, { signal }) => {
    const request = { argv: ['sh', '-c', command], ...withoutUndefined(wanted), ...(stdin === undefined ? {} : { stdin: true }) }
    const process = await client.sandbox(name).spawn(request)
    return tellOutcome(await finish(process, stdin, signal, timeoutSeconds * 1000))
  },
})

interface Outcome {
  /** Null: the command was killed because its time was over. */
  exit: ExecExit | null
  stdout: BoundedText
  stderr: BoundedText
}

/** @throws CANCELLED, or what broke the connection; the command is killed then. */
async function finish(process: SandboxProcess, stdin: string | undefined, signal: AbortSignal, timeoutMs: number): Promise<Outcome> {
  const [stdout, stderr] = [new BoundedText(STREAM_BYTES_MAX), new BoundedText(STREAM_BYTES_MAX)]
  const ended = Promise.all([process.exited, collectText(process.stdout, stdout), collectText(process.stderr, stderr)])
  ended.catch(() => undefined)
  const isOver = createDeferred<null>()
  const timer = setTimeout(() => isOver.resolve(null), timeoutMs)
  const cancel = (): void => isOver.reject(new Kosa8Error('CANCELLED', 'the command was killed: its caller cancelled it'))
  signal.addEventListener('abort', cancel, { once: true })
  if (signal.aborted) cancel()
  // A command may end without reading what it is given.
  process.stdin?.on('error', () => undefined).end(stdin)
  try {
    const settled = await Promise.race([ended, isOver.promise])
    if (settled === null) process.close()
    return { exit: settled?.[0] ?? null, stdout, stderr }
  } catch (error) {
    process.close()
    throw error
  } finally {
    clearTimeout(timer)
    signal.removeEventListener('abort', cancel)
  }
}

function tellOutcome({ exit, stdout, stderr }: Outcome): ToolAnswer {
  const output = { stdout: stdout.toString(), stderr: stderr.toString() }
  const status = exit === null ? 'killed: its time was over' : exit.signal === null ? `exit code ${exit.code}` : `ended by signal ${exit.signal}`
  const parts = [status, section('stdout', output.stdout), section('stderr', output.stderr)]
  return {
    text: parts.filter((part) => part !== '').join('\n'),
    content: {
      exitCode: exit?.code ?? null, signal: exit?.signal ?? null, timedOut: exit === null, ...output,
      omittedBytes: stdout.omittedBytes + stderr.omittedBytes,
    },
  }
}

function section(title: string, text: string): string {
  return text === '' ? '' : `--- ${title}\n${text.trimEnd()}`
}

function withoutUndefined(wanted: { cwd?: string | undefined; env?: Record<string, string> | undefined; user?: string | undefined }): Omit<ExecRequest, 'argv'> {
  return Object.fromEntries(Object.entries(wanted).filter(([, value]) => value !== undefined))
}
