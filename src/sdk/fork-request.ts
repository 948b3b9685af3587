/**
 * What a fork is going to be: what the caller says over kosa8.yaml over defaults.
 *
 * Owns: that order. Everything wrong with names, files and values is found here, before anything starts. Callers:
 * the command line, whose flags these are, and the MCP server.
 */
import path from 'node:path'
import { planApproaches } from '../config/approaches.js'
import { resolveProject, testPlanOf, type Matrix, type ProjectSettings } from '../config/project-defaults.js'
import { readProjectFile } from '../config/project-file.js'
import { findRepositoryRoot } from '../config/repository.js'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { sandboxNameSchema } from '../model/ids.js'
import type { TestPlan } from '../model/run.js'
import { TIMEOUT_MS_MAX, TRIALS_MAX, type RunRequest } from '../protocol/runs.js'

/** What a caller of a fork may say. */
export interface ForkOptions {
  approaches: string[]
  repo?: string
  from?: string
  test?: string
  results?: string[]
  repeats?: number
  matrix?: Matrix
  /** Null: as many as memory allows. */
  parallel?: number | null
  timeout?: number
  keep: 'none' | 'winner' | 'all'
  /** False: uncommitted changes are left out of the base. */
  uncommitted: boolean
  setup?: string
  image?: string
  mem?: number
  cpus?: number
  disk?: number
  pids?: number
  egress?: string
}

/** A sandbox to fork, as far as the request depends on it. */
export interface ForkSource {
  name: string
  /** Repository on the host it was made with. */
  repository: string | null
}

/**
 * Builds the request of a run.
 * @throws USAGE, CONFIG_INVALID, REPOSITORY_INVALID, APPROACH_UNKNOWN, APPROACH_INVALID.
 */
export async function buildRunRequest(options: ForkOptions, source: ForkSource | null, cwd: string): Promise<RunRequest> {
  refuseContradictions(options, source)
  const repository = await findRepositoryRoot(path.resolve(cwd, options.repo ?? source?.repository ?? '.'))
  const project = await readProjectFile(repository)
  const settings = await resolveProject(project, repository)
  const repeats = options.repeats ?? settings.repeats
  const approaches = await planApproaches({
    names: options.approaches, folder: repository, project, matrix: { ...settings.matrix, ...options.matrix }, repeats, trialsMax: TRIALS_MAX,
  })
  return {
    repository,
    approaches,
    sandbox: source === null ? null : sandboxNameSchema.parse(source.name),
    from: options.from ?? null,
    machine: source === null ? machineOf(options, settings) : null,
    setup: options.setup ?? settings.setup,
    test: testOf(options, settings.test),
    repeats,
    parallel: options.parallel ?? null,
    timeoutMs: Math.min(options.timeout ?? settings.timeoutMs, TIMEOUT_MS_MAX),
    keep: options.keep,
    includeUncommitted: options.uncommitted,
  }
}

function refuseContradictions(options: ForkOptions, source: ForkSource | null): void {
  if (source === null) {
    if (options.from === undefined) return
    throw new Kosa8Error('USAGE', '--from names a checkpoint of a sandbox, and no sandbox is given', { hint: 'kosa8 fork SANDBOX --from CHECKPOINT …' })
  }
  for (const flag of ['image', 'mem', 'cpus', 'disk', 'pids', 'egress'] as const) {
    if (options[flag] === undefined) continue
    throw new Kosa8Error('USAGE', `--${flag} is for a sandbox made for the run; clones of ${source.name} are like it`)
  }
}

function machineOf(options: ForkOptions, settings: ProjectSettings): NonNullable<RunRequest['machine']> {
  const diskMib = options.disk ?? settings.diskMib
  const processesMax = options.pids ?? settings.processesMax
  return {
    image: options.image ?? settings.image,
    memoryMib: options.mem ?? settings.memoryMib,
    cpus: options.cpus ?? settings.cpus,
    egress: options.egress ?? settings.egress,
    ...(diskMib === undefined ? {} : { diskMib }),
    ...(processesMax === undefined ? {} : { processesMax }),
  }
}

function testOf(options: ForkOptions, configured: TestPlan | null): TestPlan | null {
  const run = options.test ?? configured?.run
  if (run === undefined) {
    if (options.results === undefined) return null
    throw new Kosa8Error('USAGE', '--results is given, and there is no test command', { hint: 'give one with --test, or test: in kosa8.yaml' })
  }
  return { ...configured ?? testPlanOf(run), run, ...(options.results === undefined ? {} : { results: options.results }) }
}
