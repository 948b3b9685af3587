/**
 * The MCP server on standard input and output of a process.
 *
 * Owns: that nothing but the protocol is printed there, and when serving ends: the client has closed its side, or
 * somebody stops the process. Calls in flight are cancelled then, and waited for.
 */
import { once } from 'node:events'
import type { Readable, Writable } from 'node:stream'
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js'
import { createMcpServer } from './server.js'
import type { McpHost } from './tool.js'

/** Largest message that is read, in bytes: files are written in one. */
const MESSAGE_BYTES_MAX = 32 * 1024 * 1024

/** How long cancelled calls may take to end, milliseconds: a run is told to stop in that time. */
const IDLE_DEADLINE_MS = 10_000

/** The process around the server. */
export interface StdioStreams {
  stdin: Readable
  stdout: Writable
  /** Aborted when serving is to end. */
  signal: AbortSignal
}

/** Serves one client until it goes or the signal is aborted. */
export async function serveStdio(host: McpHost, { stdin, stdout, signal }: StdioStreams): Promise<void> {
  const { server, whenIdle } = createMcpServer(host)
  const closed = new Promise<void>((resolve) => { server.onclose = resolve })
  const close = (): void => { void server.close() }
  stdin.once('end', close)
  stdin.once('close', close)
  stdout.once('close', close)
  signal.addEventListener('abort', close, { once: true })
  await server.connect(new StdioServerTransport(stdin, stdout, { maxBufferSize: MESSAGE_BYTES_MAX }))
  if (signal.aborted) close()
  await closed
  await Promise.race([whenIdle(), once(AbortSignal.timeout(IDLE_DEADLINE_MS), 'abort')])
}
