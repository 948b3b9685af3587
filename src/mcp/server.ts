/**
 * The MCP server: lists the tools, checks what they are called with, and turns whatever they do into an answer.
 *
 * Owns: validation, the one form of failures (`isError`, with code, message and hint), progress notifications.
 * Tools declare no output schema: clients check answers that are errors against it too. Does not own what a tool
 * does, nor the transport. Callers: `serve-stdio.ts` and tests.
 */
import { Server } from '@modelcontextprotocol/sdk/server/index.js'
import type { RequestHandlerExtra } from '@modelcontextprotocol/sdk/shared/protocol.js'
import {
  CallToolRequestSchema, ErrorCode, ListToolsRequestSchema, McpError,
  type CallToolResult, type ServerNotification, type ServerRequest, type Tool as ListedTool,
} from '@modelcontextprotocol/sdk/types.js'
import { z } from 'zod'
import { Kosa8Error, toKosa8Error } from '../errors/kosa8-error.js'
import { VERSION } from '../protocol/status.js'
import { shorten } from './bounded-text.js'
import { CHECKPOINT_TOOLS } from './checkpoint-tools.js'
import { FILE_TOOLS } from './file-tools.js'
import { RUN_TOOLS } from './run-tools.js'
import { SANDBOX_TOOLS } from './sandbox-tools.js'
import type { McpHost, Tool, ToolAnswer } from './tool.js'

/** Time between two signs of life of a call that takes long, milliseconds: clients give up silent ones. */
const HEARTBEAT_MS = 15_000
/** Longest message of an error or of progress, in characters. */
const MESSAGE_LENGTH_MAX = 4_000
/** Issues of one call that are named. */
const ISSUES_MAX = 3

const INSTRUCTIONS = `kosa8 gives you Linux virtual machines ("sandboxes") of your own, which can be saved, undone and forked while they run.
Work in a sandbox whatever could do damage: sandbox_create, then sandbox_exec. Take a sandbox_checkpoint before anything you could not undo; sandbox_rewind brings back memory, processes and files.
When there are several ideas for one problem, do not guess: describe each as an approach and let fork_run try all of them at once from the same checkpoint; it compares what each changed and what the tests say.`

type Extra = RequestHandlerExtra<ServerRequest, ServerNotification>

/** Tools in the order they are listed. */
export const TOOLS: readonly Tool[] = [...SANDBOX_TOOLS, ...FILE_TOOLS, ...CHECKPOINT_TOOLS, ...RUN_TOOLS]

/** A server that is not connected yet. */
export interface McpService {
  server: Server
  /** Settles when every call that was begun has ended, those of callers who have gone included. */
  whenIdle: () => Promise<void>
}

/** Makes the server. @param heartbeatMs time between two signs of life of a long call */
export function createMcpServer(host: McpHost, heartbeatMs = HEARTBEAT_MS): McpService {
  const server = new Server({ name: 'kosa8', version: VERSION }, { capabilities: { tools: {} }, instructions: INSTRUCTIONS })
  const pending = new Set<Promise<unknown>>()
  server.onerror = (error) => host.log(error.message)
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: TOOLS.map(describeTool) }))
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
    const tool = TOOLS.find(({ name }) => name === params.name)
    if (tool === undefined) throw new McpError(ErrorCode.InvalidParams, `there is no tool ${params.name}`)
    const call = runTool(host, tool, params.arguments ?? {}, extra, heartbeatMs)
    pending.add(call)
    return call.finally(() => pending.delete(call))
  })
  return { server, whenIdle: async () => { await Promise.allSettled(pending) } }
}

function describeTool({ name, title, description, annotations, input }: Tool): ListedTool {
  const inputSchema = z.toJSONSchema(input, { io: 'input' }) as ListedTool['inputSchema']
  return { name, title, description, inputSchema, annotations: { openWorldHint: false, ...annotations } }
}

async function runTool(host: McpHost, tool: Tool, given: unknown, extra: Extra, heartbeatMs: number): Promise<CallToolResult> {
  const progress = createProgress(extra, `${tool.name} is at work`, heartbeatMs)
  try {
    const input = validate(tool, given)
    return present(await tool.run(host, input, { signal: extra.signal, reportProgress: progress.report }))
  } catch (thrown) {
    const error = toKosa8Error(thrown)
    if (error.code === 'INTERNAL') host.log(`${tool.name}: ${(thrown as Error | null)?.stack ?? String(thrown)}`)
    return present(failure(error))
  } finally {
    progress.end()
  }
}

/** @throws USAGE naming the fields that are wrong. */
function validate(tool: Tool, given: unknown): unknown {
  const parsed = tool.input.safeParse(given)
  if (parsed.success) return parsed.data
  const issues = parsed.error.issues.slice(0, ISSUES_MAX).map(({ path, message }) => `${path.length === 0 ? '' : `${path.join('.')}: `}${message}`)
  throw new Kosa8Error('USAGE', `${tool.name}: ${issues.join('; ')}`, { hint: `see the input schema of ${tool.name}` })
}

/** The answer for an error: the same three fields as text and as data. */
function failure(error: Kosa8Error): ToolAnswer {
  const message = shorten(error.message, MESSAGE_LENGTH_MAX)
  const hint = error.hint === undefined ? undefined : shorten(error.hint, MESSAGE_LENGTH_MAX)
  return {
    text: `${error.code}: ${message}${hint === undefined ? '' : `\nhint: ${hint}`}`,
    content: { error: { code: error.code, message, ...(hint === undefined ? {} : { hint }) } },
    isError: true,
  }
}

function present({ text, content, isError }: ToolAnswer): CallToolResult {
  return { content: [{ type: 'text', text }], structuredContent: content, ...(isError === true ? { isError } : {}) }
}

/** Progress for a caller who gave a token for it; for others, nothing. */
function createProgress(extra: Extra, firstMessage: string, heartbeatMs: number): { report: (message: string) => void; end: () => void } {
  const progressToken = extra._meta?.progressToken
  if (progressToken === undefined) return { report: () => undefined, end: () => undefined }
  let progress = 0
  let lastMessage = firstMessage
  const report = (message: string): void => {
    lastMessage = shorten(message, MESSAGE_LENGTH_MAX)
    progress += 1
    // A caller who has gone is noticed by the call's signal.
    extra.sendNotification({ method: 'notifications/progress', params: { progressToken, progress, message: lastMessage } }).catch(() => undefined)
  }
  const heartbeat = setInterval(() => report(lastMessage), heartbeatMs)
  return { report, end: () => clearInterval(heartbeat) }
}
