/** `kosa8 mcp`: the MCP server on standard input and output. */
import type { Command } from 'commander'
import type { CommandTools } from './host.js'
import { defineVerb, type Cli } from './verb.js'

/** Adds the verb. */
export function addMcp(cli: Cli, program: Command): void {
  defineVerb(cli, program, 'mcp', {
    summary: 'Serve sandboxes and forks to an AI agent: an MCP server on standard input and output.',
    examples: ['kosa8 mcp', 'claude mcp add kosa8 -- kosa8 mcp'],
  }, serve)
}

async function serve({ host, client, output }: CommandTools): Promise<number> {
  const stopping = new AbortController()
  const stopListening = host.onSignal(() => stopping.abort())
  try {
    // Only here: the protocol's library would cost every other command, and every press of a key that completes one, its loading.
    const { serveStdio } = await import('../mcp/serve-stdio.js')
    const log = (line: string): void => output.note(`kosa8 mcp: ${line}`)
    await serveStdio({ client, cwd: host.cwd, log }, { stdin: host.stdin, stdout: host.stdout, signal: stopping.signal })
    return 0
  } finally {
    stopListening()
  }
}
