/**
 * What can be named on a command line: sandboxes, checkpoints, runs, approaches, images.
 *
 * Owns: which of them stands where, by verb and option. Called by `complete.ts`.
 */
import path from 'node:path'
import { listApproachNames } from '../config/approaches.js'
import { findRepositoryRoot } from '../config/repository.js'
import type { Kosa8Client } from '../sdk/client.js'
import { COMPLETED_SHELLS } from './completion.js'
import { resolveRun } from './run-argument.js'

/** One thing that may be typed, and a few words on it. */
export interface Candidate {
  value: string
  about: string
}

/** One that speaks for itself. */
export function bare(value: string): Candidate {
  return { value, about: '' }
}

/** What is known where something is to be named. */
export interface Asked {
  client: Kosa8Client
  cwd: string
  verb: string
  /** Arguments of the verb before this one. */
  args: readonly string[]
  /** Values of options before, by long flag. */
  values: Readonly<Record<string, string>>
  /** The word so far. */
  current: string
}

type Source = (asked: Asked) => Promise<Candidate[]>

/** Sources of a verb's arguments in their order; the last stands for all that follow where it is marked so. */
const ARGUMENTS: Record<string, { sources: Source[]; repeats?: true }> = {
  'fork': { sources: [sandboxes] },
  'runs show': { sources: [runs] },
  'runs rm': { sources: [runs] },
  'report': { sources: [runs] },
  'diff': { sources: [runs, labels, labels] },
  'apply': { sources: [runs, labels] },
  'exec': { sources: [sandboxes] },
  'shell': { sources: [sandboxes] },
  'cp': { sources: [places, places] },
  'rm': { sources: [sandboxes], repeats: true },
  'egress': { sources: [sandboxes, values('deny')] },
  'checkpoint': { sources: [sandboxes] },
  'checkpoint ls': { sources: [sandboxes] },
  'checkpoint rm': { sources: [sandboxes, checkpoints] },
  'rewind': { sources: [sandboxes] },
  'approve': { sources: [approvals] },
  'image rm': { sources: [images] },
  'completion': { sources: [values(...COMPLETED_SHELLS)] },
}

/** Of options that declare no choices themselves. */
const OPTIONS: Record<string, Source> = {
  '--approaches': approaches, '--from': checkpoints, '--to': checkpoints, '--image': images, '--log': labels,
  '--egress': values('deny', 'allow'), '--parallel': values('auto'),
}

/** What may stand as the next argument; nothing where the daemon cannot be asked. */
export async function candidatesOfArgument(asked: Asked): Promise<Candidate[]> {
  const { sources, repeats } = Object.hasOwn(ARGUMENTS, asked.verb) ? ARGUMENTS[asked.verb] as typeof ARGUMENTS[string] : { sources: [] }
  const source = sources[asked.args.length] ?? (repeats === true ? sources.at(-1) : undefined)
  const found = await source?.(asked).catch(() => []) ?? []
  return repeats === true ? found.filter(({ value }) => !asked.args.includes(value)) : found
}

/** What may stand as the value of an option. */
export async function candidatesOfOption(long: string, asked: Asked): Promise<Candidate[]> {
  return Object.hasOwn(OPTIONS, long) ? await (OPTIONS[long] as Source)(asked) : []
}

function values(...all: string[]): Source {
  return async () => all.map(bare)
}

async function sandboxes({ client }: Asked): Promise<Candidate[]> {
  return (await client.listSandboxes()).map(({ name, state, image }) => ({ value: name, about: `${state}, ${image}` }))
}

/** `NAME:` of each sandbox; files of the host are the shell's business. */
async function places(asked: Asked): Promise<Candidate[]> {
  return asked.current === '' ? [] : (await sandboxes(asked)).map(({ value, about }) => ({ value: `${value}:`, about }))
}

async function checkpoints({ client, args }: Asked): Promise<Candidate[]> {
  const [sandbox] = args
  if (sandbox === undefined) return []
  const all = [...await client.listCheckpoints(sandbox), ...await client.checkpoints.listUnrecorded(sandbox)]
  return all.map(({ id, label }) => ({ value: id, about: label ?? '' }))
}

async function runs({ client }: Asked): Promise<Candidate[]> {
  const all = await client.runs.list()
  const latest = all.length === 0 ? [] : [{ value: 'latest', about: all[0]?.id ?? '' }]
  return [...latest, ...all.map(({ id, phase, approaches: names }) => ({ value: id, about: `${phase}: ${names.join(', ')}` }))]
}

/** Of the trials of the run that is named first. */
async function labels({ client, args: [run] }: Asked): Promise<Candidate[]> {
  if (run === undefined) return []
  const { trials } = await client.runs.get(await resolveRun(client, run))
  return [...new Set(trials.map(({ label }) => label))].map(bare)
}

/** The next of a list with commas. */
async function approaches({ cwd, current, values: options }: Asked): Promise<Candidate[]> {
  const typed = current.split(',').slice(0, -1)
  const folder = await findRepositoryRoot(path.resolve(cwd, options['--repo'] ?? '.'))
  const names = (await listApproachNames(folder)).filter((name) => !typed.includes(name))
  return names.map((name) => bare([...typed, name].join(',')))
}

async function approvals({ client }: Asked): Promise<Candidate[]> {
  return (await client.approvals.list()).map(({ id, action, sandbox, state }) => ({ value: id, about: `${action} ${sandbox}, ${state}` }))
}

async function images({ client }: Asked): Promise<Candidate[]> {
  return [...new Set((await client.listImages()).map(({ name }) => name))].map(bare)
}
