/**
 * Which changed files are tests of the base, and putting the base's versions back.
 *
 * Owns: the names by which test files and runner settings are known, and the restore in the guest. A verdict
 * rests on the baseline's tests: what an approach did to them is reported and undone before the deciding run.
 */
import picomatch from 'picomatch'
import type { FileChange } from '../model/diff.js'
import type { Base } from '../model/run.js'
import { BASE_INDEX, openEvidence } from './evidence.js'
import { joinRecords, showPath, splitRecords } from './paths.js'
import { runInPlace, stageGit } from './stage-place.js'
import { commandError, type Workspace } from './workspace.js'

/** What an approach did to the base's tests. Paths as in the list of changes. */
export interface TestFilesChanged {
  /** Test files and runner settings of the base that were changed, moved or deleted: to be put back. */
  changed: string[]
  /** Runner settings that are new: to be taken away for the deciding run. */
  addedConfigs: string[]
}

const FOLDERS = ['tests', 'test', 'spec', 'specs', '__tests__', '__snapshots__', '__mocks__', 'testdata', 'e2e']

const TEST_NAMES = ['*.test.*', '*.spec.*', '*_test.*', '*_spec.*', 'test_*.py', '*.t', '*Test.java', '*Tests.java', '*Test.kt', '*.snap']

const CONFIG_NAMES = [
  'conftest.py', 'pytest.ini', 'tox.ini', 'vitest.config.*', 'vitest.workspace.*', 'vitest.setup.*', 'jest.config.*', 'jest.setup.*',
  '.mocharc', '.mocharc.*', 'ava.config.*', 'karma.conf.*', 'playwright.config.*', 'cypress.config.*', '.taprc', '.rspec',
  'phpunit.xml', 'phpunit.xml.dist', 'nextest.toml',
]

const globOptions = { dot: true, nonegate: true }
const isTestName = picomatch(TEST_NAMES, globOptions)
const isConfigName = picomatch(CONFIG_NAMES, globOptions)

/**
 * Picks the base's test files among the changes. Pure.
 * @param rules globs of further test files, and the test command, whose words may name files.
 */
export function testFilesChanged(
  changes: readonly FileChange[], rules: { globs: readonly string[]; testCommand: string },
): TestFilesChanged {
  const isGlobbed = rules.globs.length === 0 ? (): boolean => false : picomatch([...rules.globs], globOptions)
  const named = wordsOf(rules.testCommand)
  const isTest = (path: string): boolean => isGlobbed(path) || named.has(path) || isTestPath(path)
  const changed = new Set<string>()
  const addedConfigs: string[] = []
  for (const change of changes) {
    const before = change.oldPath ?? change.path
    if (change.status !== 'A' && isTest(before)) changed.add(before)
    if ((change.status === 'A' || change.status === 'R') && isConfigName(baseName(change.path))) addedConfigs.push(change.path)
  }
  return { changed: [...changed], addedConfigs }
}

function isTestPath(path: string): boolean {
  const name = baseName(path)
  return isConfigName(name) || isTestName(name) || path.split('/').slice(0, -1).some((folder) => FOLDERS.includes(folder))
}

function baseName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1)
}

/** Words of a shell command that may be paths in the repository. */
function wordsOf(command: string): Set<string> {
  return new Set(command.split(/[\s'"`;&|()<>=]+/).map((word) => word.replace(/^(\.\/)+/, '')).filter((word) => word !== ''))
}

const REMOVE_SCRIPT = 'xargs -0 -r rm -rf --'

/**
 * Puts the base's versions of `changed` back into the guest's working tree and removes `addedConfigs`. The guest's
 * `.git` and its index stay as they are.
 * @throws Kosa8Error EVIDENCE_REFUSED when the record of the base in the guest was destroyed.
 */
export async function restoreTestFiles(
  workspace: Workspace, base: Base, paths: TestFilesChanged, signal?: AbortSignal,
): Promise<void> {
  if (paths.changed.length === 0 && paths.addedConfigs.length === 0) return
  const { place: copy } = await openEvidence(workspace, base, 'restore.index', { signal })
  const place = { ...copy, index: `${copy.gitDir}/${BASE_INDEX}` }
  const wanted = new Set(paths.changed)
  const tracked = splitRecords(await stageGit(place, ['ls-files', '-z', '-c']))
  const restore = tracked.filter((path) => wanted.has(showPath(path)))
  if (paths.addedConfigs.length > 0) {
    const added = joinRecords(paths.addedConfigs.map((path) => Buffer.from(`./${path}`)))
    const removed = await runInPlace(place, ['sh', '-c', REMOVE_SCRIPT], added)
    if (removed.exitCode !== 0) throw commandError('removing new test settings', removed.exitCode, removed.stderr.toString('utf8'))
  }
  if (restore.length > 0) await stageGit(place, ['checkout-index', '-f', '-q', '-z', '--stdin'], joinRecords(restore))
}
