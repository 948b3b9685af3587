/** `kosa8 diff RUN A [B]`. */
import type { Command } from 'commander'
import type { CommandTools } from './host.js'
import { resolveRun } from './run-argument.js'
import { printStream } from './stream-output.js'
import { defineVerb, type Cli, type CommonOptions } from './verb.js'

/** Adds the verb. */
export function addDiff(cli: Cli, program: Command): void {
  defineVerb(cli, program, 'diff <run> <approach> [other]', {
    summary: 'Print the patch of one approach against the base, or from one approach to another.',
    examples: ['kosa8 diff latest quick-fix', 'kosa8 diff latest quick-fix rewrite/2'],
  }, diff)
}

async function diff({ client, host, output }: CommandTools, [run, a, b]: string[], options: CommonOptions): Promise<number> {
  const id = await resolveRun(client, run as string)
  const patch = await client.runs.diff(id, a as string, b)
  if (options.json !== true) {
    await printStream(host, patch)
    return 0
  }
  const chunks: Buffer[] = []
  for await (const chunk of patch) chunks.push(chunk as Buffer)
  output.printJson({ run: id, a, b: b ?? null, patch: Buffer.concat(chunks).toString('utf8') })
  return 0
}
