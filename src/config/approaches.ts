/**
 * From the names a user gave to the plans a run is made of.
 *
 * Order: `approaches:` of kosa8.yaml, then `.kosa8/approaches/NAME.{sh,patch,md,ts,js}`, then a built-in
 * strategy of that name. Everything is read and checked here, before a sandbox exists. Owns: that order and its
 * errors. Does not own what a strategy does with its parameters.
 */
import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { BASELINE_LABEL, approachNameSchema } from '../model/ids.js'
import type { ApproachPlan, StrategyReference } from '../model/run.js'
import { findNearest } from '../util/nearest.js'
import { readApproachText, requireModule } from './approach-files.js'
import { countCells, expandMatrix, labelOf } from './matrix.js'
import type { Matrix } from './project-defaults.js'
import { readProjectFile } from './project-file.js'
import type { ProjectFile } from './project-schema.js'

/** Strategies that come with kosa8; `none` is the baseline's own. */
export const BUILTIN_STRATEGIES = ['script', 'patch', 'command'] as const
/** Folder of approaches in a repository. */
export const APPROACHES_FOLDER = path.join('.kosa8', 'approaches')
const EXTENSIONS = ['sh', 'patch', 'md', 'ts', 'js'] as const

/** What the plans are made from. */
export interface ApproachRequest {
  names: readonly string[]
  /** Top folder of the repository, absolute. */
  folder: string
  project: ProjectFile
  matrix: Matrix
  repeats: number
  /** More trials than this are refused. */
  trialsMax: number
}

/** A name found: its strategy and parameters, before the matrix. */
interface FoundApproach {
  strategy: StrategyReference
  parameters: Record<string, unknown>
}

/**
 * Resolves every name and expands the matrix.
 * @throws USAGE, APPROACH_UNKNOWN or APPROACH_INVALID; nothing has been started then.
 */
export async function planApproaches(request: ApproachRequest): Promise<ApproachPlan[]> {
  checkNames(request.names)
  checkSize(request)
  const cells = expandMatrix(request.matrix)
  const files = await listApproachFiles(request.folder)
  const plans: ApproachPlan[] = []
  for (const name of request.names) {
    const found = await findApproach(name, request, files)
    for (const cell of cells) {
      plans.push({ approach: name, label: labelOf(name, cell), strategy: found.strategy, parameters: { ...found.parameters, ...cell } })
    }
  }
  return plans
}

/** Names that `--approaches` takes in this repository, sorted. @throws CONFIG_INVALID for a broken kosa8.yaml. */
export async function listApproachNames(folder: string): Promise<string[]> {
  const { approaches = {} } = await readProjectFile(folder)
  return namesOf(approaches, await listApproachFiles(folder))
}

function namesOf(entries: object, files: ApproachFiles): string[] {
  return [...new Set([...Object.keys(entries), ...files.keys()])].sort()
}

function checkSize({ names, matrix, repeats, trialsMax }: ApproachRequest): void {
  const cells = countCells(matrix)
  const trials = names.length * cells * repeats
  if (trials <= trialsMax) return
  throw new Kosa8Error('USAGE', `approaches (${names.length}) × matrix cells (${cells}) × repeats (${repeats}) `
    + `make ${trials} trials; at most ${trialsMax} are allowed`, { hint: 'give fewer values, approaches or repeats' })
}

function checkNames(names: readonly string[]): void {
  if (names.length === 0) {
    throw new Kosa8Error('USAGE', 'no approach is given', { hint: 'name at least one: --approaches a,b,c' })
  }
  for (const [index, name] of names.entries()) {
    const checked = approachNameSchema.safeParse(name)
    if (!checked.success) {
      throw new Kosa8Error('APPROACH_INVALID', `${JSON.stringify(name)} is no name for an approach: ${checked.error.issues[0]?.message}`)
    }
    if (name === BASELINE_LABEL) {
      throw new Kosa8Error('APPROACH_INVALID', `an approach cannot be named ${BASELINE_LABEL}: that is the trial without a change, which every run has`)
    }
    if (names.indexOf(name) !== index) {
      throw new Kosa8Error('APPROACH_INVALID', `the approach ${name} is given twice`, { hint: 'use --repeats to try one approach several times' })
    }
  }
}

/** File names by approach name. */
type ApproachFiles = Map<string, string[]>

async function listApproachFiles(folder: string): Promise<ApproachFiles> {
  const files: ApproachFiles = new Map()
  const names = await readdir(path.join(folder, APPROACHES_FOLDER)).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return []
    throw new Kosa8Error('APPROACH_INVALID', `${APPROACHES_FOLDER} cannot be read: ${error.message}`, { cause: error })
  })
  for (const fileName of names.sort()) {
    const extension = path.extname(fileName).slice(1)
    if (!(EXTENSIONS as readonly string[]).includes(extension)) continue
    const name = path.basename(fileName, `.${extension}`)
    files.set(name, [...files.get(name) ?? [], fileName])
  }
  return files
}

async function findApproach(name: string, request: ApproachRequest, files: ApproachFiles): Promise<FoundApproach> {
  const entries = request.project.approaches ?? {}
  const entry = Object.hasOwn(entries, name) ? entries[name] : undefined
  if (entry !== undefined) return fromEntry(name, entry, request.folder)
  const candidates = files.get(name) ?? []
  if (candidates.length > 1) {
    throw new Kosa8Error('APPROACH_INVALID', `the approach ${name} has several files: ${candidates.join(', ')}`, {
      hint: `keep one of them in ${APPROACHES_FOLDER}, or name it in kosa8.yaml`,
    })
  }
  if (candidates[0] !== undefined) return fromFile(name, path.join(APPROACHES_FOLDER, candidates[0]), request.folder)
  if (isBuiltin(name)) return fromEntry(name, { strategy: name }, request.folder)
  throw unknownApproach(name, namesOf(entries, files))
}

function unknownApproach(name: string, names: string[]): Kosa8Error {
  const nearest = findNearest(name, names)
  const list = names.length === 0
    ? `there are none: add ${path.join(APPROACHES_FOLDER, `${name}.sh`)} or an entry in kosa8.yaml`
    : `there are ${names.join(', ')}`
  return new Kosa8Error('APPROACH_UNKNOWN', `there is no approach ${name}`, {
    hint: nearest === null ? list : `did you mean ${nearest}? ${list}`,
    details: { name, existing: names, nearest },
  })
}

async function fromFile(name: string, relative: string, folder: string): Promise<FoundApproach> {
  switch (path.extname(relative)) {
    case '.sh': return { strategy: builtin('script'), parameters: { content: await readApproachText(folder, relative) } }
    case '.patch': return { strategy: builtin('patch'), parameters: { content: await readApproachText(folder, relative) } }
    case '.md': throw new Kosa8Error('APPROACH_INVALID', `the approach ${name} is a prompt (${relative}), and agent strategies are not there yet`, {
      hint: `use a .sh, .patch, .ts or .js file in ${APPROACHES_FOLDER}`,
    })
    default: return { strategy: { kind: 'module', path: await requireModule(folder, relative) }, parameters: {} }
  }
}

async function fromEntry(name: string, entry: { strategy: string }, folder: string): Promise<FoundApproach> {
  const { strategy, ...parameters } = entry as { strategy: string } & Record<string, unknown>
  if (/\.[cm]?[tj]s$/.test(strategy)) return { strategy: { kind: 'module', path: await requireModule(folder, strategy) }, parameters }
  if (!isBuiltin(strategy)) {
    const nearest = findNearest(strategy, BUILTIN_STRATEGIES)
    throw new Kosa8Error('APPROACH_INVALID', `the approach ${name} has the unknown strategy ${strategy}`, {
      hint: `${nearest === null ? '' : `did you mean ${nearest}? `}strategies are ${BUILTIN_STRATEGIES.join(', ')}, or the path of a .ts or .js module`,
    })
  }
  if (strategy === 'command') {
    if (typeof parameters['run'] !== 'string' || parameters['run'].trim() === '') {
      throw needs(name, strategy, 'run: a shell command')
    }
    return { strategy: builtin(strategy), parameters }
  }
  return { strategy: builtin(strategy), parameters: await inlineContent(name, strategy, parameters, folder) }
}

/** Scripts and patches travel by content: what `file` names is read now, on the user's side. */
async function inlineContent(
  name: string, strategy: string, parameters: Record<string, unknown>, folder: string,
): Promise<Record<string, unknown>> {
  const { file, ...others } = parameters
  if (typeof file === 'string') return { ...others, content: await readApproachText(folder, file) }
  if (typeof parameters['content'] === 'string') return parameters
  throw needs(name, strategy, `file: the path of a ${strategy === 'patch' ? 'patch' : 'script'}, or content: its text`)
}

function needs(name: string, strategy: string, what: string): Kosa8Error {
  return new Kosa8Error('APPROACH_INVALID', `the approach ${name} uses the strategy ${strategy}, which needs ${what}`, {
    hint: `give it under approaches.${name} in kosa8.yaml`,
  })
}

function builtin(name: string): StrategyReference {
  return { kind: 'builtin', name }
}

function isBuiltin(name: string): boolean {
  return (BUILTIN_STRATEGIES as readonly string[]).includes(name)
}
