/**
 * What a project means once everything it leaves open is filled in.
 *
 * Owns: the default of each key. Called by the CLI's `fork` and `create`, whose flags go before both.
 */
import { readFile, stat } from 'node:fs/promises'
import path from 'node:path'
import type { TestPlan } from '../model/run.js'
import type { ProjectFile } from './project-schema.js'
import { parseDurationMs, parseMemoryMib } from './units.js'

/** A parameter and the values every approach is tried with. */
export type Matrix = Record<string, (string | number | boolean)[]>

/** A project with every key decided. */
export interface ProjectSettings {
  image: string
  memoryMib: number
  cpus: number
  /** Undefined: the image's. */
  diskMib: number | undefined
  /** Undefined: what every sandbox gets. */
  processesMax: number | undefined
  /** A rule's normal form. */
  egress: string
  setup: string | null
  test: TestPlan | null
  /** Limit of one trial. */
  timeoutMs: number
  matrix: Matrix
  repeats: number
}

export const DEFAULT_MEMORY_MIB = 1024
export const DEFAULT_CPUS = 1
export const DEFAULT_TRIAL_TIMEOUT_MS = 30 * 60_000
export const DEFAULT_TEST_TIMEOUT_MS = 10 * 60_000
/** A larger package.json is not one people wrote. */
const PACKAGE_BYTES_MAX = 4 * 1024 * 1024
/** What `npm init` writes in place of tests. */
const NO_TEST_SCRIPT = /no test specified/i

/** Fills in what the project leaves open, looking at the folder where the answer lies there. */
export async function resolveProject(project: ProjectFile, folder: string): Promise<ProjectSettings> {
  const packageFile = await readPackage(folder)
  return {
    image: project.image ?? (packageFile === null ? 'base' : 'node'),
    memoryMib: (project.mem === undefined ? null : parseMemoryMib(project.mem)) ?? DEFAULT_MEMORY_MIB,
    cpus: project.cpus ?? DEFAULT_CPUS,
    diskMib: (project.disk === undefined ? null : parseMemoryMib(project.disk)) ?? undefined,
    processesMax: project.pids,
    egress: [project.egress ?? 'deny'].flat().join(','),
    setup: project.setup ?? null,
    test: resolveTest(project.test, packageFile),
    timeoutMs: durationOr(project.timeout, DEFAULT_TRIAL_TIMEOUT_MS),
    matrix: project.matrix ?? {},
    repeats: project.repeats ?? 1,
  }
}

function resolveTest(test: ProjectFile['test'], packageFile: PackageFile | null): TestPlan | null {
  if (typeof test === 'string') return testPlanOf(test)
  if (test !== undefined) {
    return {
      run: test.run,
      results: [test.results ?? []].flat(),
      timeoutMs: durationOr(test.timeout, DEFAULT_TEST_TIMEOUT_MS),
      files: [test.files ?? []].flat(),
    }
  }
  const script = packageFile?.scripts?.['test']
  return typeof script === 'string' && script.trim() !== '' && !NO_TEST_SCRIPT.test(script) ? testPlanOf('npm test') : null
}

/** A test command with every other setting at its default. */
export function testPlanOf(run: string): TestPlan {
  return { run, results: [], timeoutMs: DEFAULT_TEST_TIMEOUT_MS, files: [] }
}

function durationOr(text: string | undefined, defaultMs: number): number {
  return (text === undefined ? null : parseDurationMs(text)) ?? defaultMs
}

interface PackageFile {
  scripts?: Record<string, unknown>
}

/** The package.json of a folder; null when there is none, empty when it cannot be understood. */
async function readPackage(folder: string): Promise<PackageFile | null> {
  const file = path.join(folder, 'package.json')
  try {
    const found = await stat(file)
    if (!found.isFile()) return null
    if (found.size > PACKAGE_BYTES_MAX) return {}
  } catch {
    return null
  }
  try {
    const value: unknown = JSON.parse(await readFile(file, 'utf8'))
    return typeof value === 'object' && value !== null ? value : {}
  } catch {
    return {}
  }
}
