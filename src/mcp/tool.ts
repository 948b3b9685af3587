/**
 * What a tool of the MCP server is: a name, words for the agent that reads them, a schema, and work over the SDK.
 *
 * Owns: the contract between `server.ts`, which serves tools, and the files that define some.
 */
import type { z } from 'zod'
import { approvalIdSchema } from '../model/approval.js'
import type { Kosa8Client } from '../sdk/client.js'

/** What every tool works with. */
export interface McpHost {
  client: Kosa8Client
  /** Folder that relative paths on this host start from. */
  cwd: string
  /** One line for the people who run the server; never part of the protocol. */
  log(line: string): void
}

/** One call of a tool. */
export interface ToolCall {
  /** Aborted when the caller cancels the call or has gone. */
  signal: AbortSignal
  /** Tells a caller who asked for it how far the work is. */
  reportProgress: (message: string) => void
}

/** What a tool says: as text, and the same as plain data. Both are bounded by the tool. */
export interface ToolAnswer {
  text: string
  content: Record<string, unknown>
  /** True: the work ended, in a failure that `content.error` tells. */
  isError?: boolean
}

/** Hints for a client that asks people before some calls. */
export interface ToolAnnotations {
  readOnlyHint?: boolean
  destructiveHint?: boolean
  idempotentHint?: boolean
}

/** A tool as the server keeps it; `run` is given input that fits the schema. */
export interface Tool {
  name: string
  title: string
  description: string
  annotations: ToolAnnotations
  input: z.ZodType
  run(host: McpHost, input: unknown, call: ToolCall): Promise<ToolAnswer>
}

/** The parameter of tools that may need an approval. */
export const approvalParameter = approvalIdSchema.optional()
  .describe('where the sandbox was made with approvals: id of the request that a person has approved. Call without it first: the error names the request')

/** A tool as its file writes it. */
interface ToolDefinition<Input extends z.ZodType> extends Omit<Tool, 'input' | 'run'> {
  input: Input
  run(host: McpHost, input: z.output<Input>, call: ToolCall): Promise<ToolAnswer>
}

/** Defines a tool whose work is typed by its schema. */
export function defineTool<Input extends z.ZodType>(definition: ToolDefinition<Input>): Tool {
  return { ...definition, run: (host, input, call) => definition.run(host, input as z.output<Input>, call) }
}
