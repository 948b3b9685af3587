/**
 * The form of `kosa8.yaml`, as a schema.
 *
 * Owns: keys, kinds and help texts; `docs/kosa8.schema.json` is generated from it. Does not own reading the
 * file (`project-file.ts`) nor what an approach becomes (`approaches.ts`).
 */
import { z } from 'zod'
import { egressSchema } from '../model/egress.js'
import { approachNameSchema } from '../model/ids.js'
import { parseDurationMs, parseMemoryMib } from './units.js'

/** Where the published JSON Schema lies, relative to the package. */
export const SCHEMA_FILE = 'docs/kosa8.schema.json'

const durationSchema = z.string()
  .regex(/^(\d+(\.\d+)?(ms|s|m|h|d) ?)+$/, 'use a duration such as "90s", "30m" or "1h30m"')
  .refine((text) => parseDurationMs(text) !== null, 'use a duration above zero')
  .meta({ examples: ['90s', '30m'] })

const memorySchema = z.string()
  .regex(/^\d+(\.\d+)? ?[MGT](i?B)?$/i, 'use a size such as "512M" or "2G"')
  .refine((text) => parseMemoryMib(text) !== null, 'use a whole number of MiB')
  .meta({ examples: ['512M', '2G'] })

const globsSchema = z.union([z.string(), z.array(z.string())])

const matrixSchema = z.record(
  z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,31}$/, 'use a parameter name of letters, digits and underscores'),
  z.array(z.union([z.string(), z.number(), z.boolean()])).min(1, 'give at least one value'),
)

const testSchema = z.strictObject({
  run: z.string().min(1).describe('Shell command that runs the tests in the workspace.'),
  results: globsSchema.optional().describe('Report files (JUnit XML, TAP, …) it writes, as globs; else its standard output is read.'),
  timeout: durationSchema.optional().describe('Limit of one test run; 10m when absent.'),
  files: globsSchema.optional().describe('Further globs of test files, which are put back before the deciding run.'),
})

const hostsSchema = z.array(egressSchema).min(1)
  .refine((hosts) => hosts.length === 1 || !hosts.some((host) => host === 'deny' || host === 'allow'), 'deny and allow stand alone')

const approachSchema = z.looseObject({
  strategy: z.string().min(1).describe('A built-in strategy (script, patch, command) or the path of a module.'),
}).describe('A strategy with its parameters.')

export const projectSchema = z.strictObject({
  image: z.string().min(1).optional().describe('Base image; node where there is a package.json, else base.'),
  mem: memorySchema.optional().describe('Memory of the machine; 1G when absent.'),
  cpus: z.int().min(1).max(64).optional().describe('Virtual processors; 1 when absent.'),
  disk: memorySchema.optional().describe('Size of the disk; the image\'s when absent, and not below it.'),
  pids: z.int().min(16).max(32768).optional().describe('Processes of all commands together, threads counted; 4096 when absent.'),
  egress: z.union([egressSchema, hostsSchema]).optional()
    .describe('What the machine may reach: deny (the default), allow, or hosts, each with or without :port.'),
  setup: z.string().min(1).optional().describe('Shell command, run once before the checkpoint.'),
  test: z.union([z.string().min(1), testSchema]).optional().describe('How the tests are run.'),
  timeout: durationSchema.optional().describe('Limit of one trial; 30m when absent.'),
  approaches: z.record(approachNameSchema, approachSchema).optional().describe('Approaches by name.'),
  matrix: matrixSchema.optional().describe('Parameters and the values every approach is tried with.'),
  repeats: z.int().min(1).max(100).optional().describe('Trials per approach; 1 when absent.'),
})

/** `kosa8.yaml` as written, checked. */
export type ProjectFile = z.infer<typeof projectSchema>

/** Keys the schema knows at a place in the file, for "did you mean"; null where every key is allowed. */
export function knownKeysAt(place: readonly PropertyKey[]): string[] | null {
  if (place.length === 0) return Object.keys(projectSchema.shape)
  return place.length === 1 && place[0] === 'test' ? Object.keys(testSchema.shape) : null
}

/** The published JSON Schema, as text. */
export function formatJsonSchema(): string {
  const schema = z.toJSONSchema(projectSchema, { target: 'draft-2020-12', io: 'input' })
  return `${JSON.stringify({ title: 'kosa8.yaml', ...schema }, null, 2)}\n`
}
