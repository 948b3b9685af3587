/** `kosa8 report RUN --format …`. */
import { Option, type Command } from 'commander'
import type { Readable } from 'node:stream'
import type { RunDocument } from '../model/run.js'
import { renderReport, reportFormats, type ReportFormat } from '../report/registry.js'
import type { Kosa8Client } from '../sdk/client.js'
import type { CommandTools } from './host.js'
import { readEndedRun } from './run-argument.js'
import { defineVerb, type Cli, type CommonOptions } from './verb.js'

interface ReportVerbOptions extends CommonOptions {
  format: ReportFormat
}

/** Longest part of one patch that a report shows, in bytes; the whole lies in the run's folder. */
const PATCH_BYTES_MAX = 4 * 1024 * 1024

/** Adds the verb. */
export function addReport(cli: Cli, program: Command): void {
  defineVerb<ReportVerbOptions>(cli, program, 'report <run>', {
    summary: 'Print the report of a run. RUN is an id, or latest.',
    examples: ['kosa8 report latest', 'kosa8 report latest --format html > report.html'],
  }, report)
    .addOption(new Option('--format <format>', 'form of the report').choices(reportFormats).default('text'))
}

async function report({ client, host, output }: CommandTools, [run]: string[], options: ReportVerbOptions): Promise<number> {
  const document = await readEndedRun(client, run as string)
  const format = options.json === true ? 'json' : options.format
  const patches = format === 'html' ? await readPatches(client, document) : {}
  output.print(renderReport(format, document, { patches, colour: output.hasColour, columns: host.terminalSize().columns }))
  return 0
}

async function readPatches(client: Kosa8Client, document: RunDocument): Promise<Record<string, string>> {
  const patches: Record<string, string> = {}
  for (const { diff } of document.trials) {
    if (diff !== null) patches[diff.patch] = await readStart(await client.runs.file(document.id, diff.patch))
  }
  return patches
}

async function readStart(stream: Readable): Promise<string> {
  const chunks: Buffer[] = []
  let sizeBytes = 0
  for await (const chunk of stream) {
    chunks.push(chunk as Buffer)
    sizeBytes += (chunk as Buffer).length
    if (sizeBytes >= PATCH_BYTES_MAX) break
  }
  return Buffer.concat(chunks).subarray(0, PATCH_BYTES_MAX).toString('utf8')
}
