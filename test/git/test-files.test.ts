/**
 * Which changes are to the base's tests, and putting those back.
 */
import { describe, expect, it } from 'vitest'
import { restoreTestFiles, testFilesChanged } from '../../src/git/test-files.js'
import { startTrial } from '../helpers/git-fixture.js'

const change = (status: 'A' | 'M' | 'D' | 'T' | 'R', path: string, oldPath?: string) => ({
  status, path, oldMode: null, newMode: null, insertions: 0, deletions: 0, ...(oldPath === undefined ? {} : { oldPath }),
})
const NONE = { globs: [], testCommand: '' }

describe('test files changed', () => {
  it.each([
    'tests/a.py', 'test/data/x.json', 'src/test/java/A.java', 'spec/a.rb', 'src/__tests__/a.js', 'src/__snapshots__/a.js.snap', 'a.test.ts',
    'lib/b.spec.mjs', 'pkg/c_test.go', 'test_d.py', 't/basic.t', 'conftest.py', 'vitest.config.ts', 'jest.config.cjs', '.mocharc.yml', 'pytest.ini',
  ])('holds %s when it was changed or deleted', (path) => {
    expect(testFilesChanged([change('M', path)], NONE).changed).toEqual([path])
    expect(testFilesChanged([change('D', path)], NONE).changed).toEqual([path])
  })

  it.each(['src/latest.ts', 'src/contest.py', 'testing.md', 'src/attest/a.ts', 'package.json', 'protest_x.py'])('does not hold %s', (path) => {
    expect(testFilesChanged([change('M', path)], NONE)).toEqual({ changed: [], addedConfigs: [] })
  })

  it('holds files the command names, those the globs match, and the former name of a moved test', () => {
    const rules = { globs: ['checks/**'], testCommand: 'sh ./run-checks.sh && node "tools/verify.mjs"' }
    expect(testFilesChanged([
      change('M', 'run-checks.sh'), change('T', 'tools/verify.mjs'), change('D', 'checks/deep/one'), change('R', 'src/moved.js', 'test/moved.js'),
      change('M', 'src/x.js'),
    ], rules).changed).toEqual(['run-checks.sh', 'tools/verify.mjs', 'checks/deep/one', 'test/moved.js'])
  })

  it('leaves new tests alone, but lists new settings of a runner', () => {
    expect(testFilesChanged([change('A', 'test/new.test.js'), change('A', 'sub/conftest.py'), change('R', 'jest.config.js', 'x.js')], NONE))
      .toEqual({ changed: [], addedConfigs: ['sub/conftest.py', 'jest.config.js'] })
  })
})

describe('restoring test files', () => {
  it('puts back changed, deleted and replaced ones byte by byte, removes new settings, keeps the rest', async () => {
    const trial = await startTrial(`mkdir test; printf 'a\\r\\n' > test/crlf; echo d > test/deleted; echo m > test/mode; chmod +x test/mode; echo f > test/folder; mkdir test/sub; echo s > test/sub/in; echo w > 'test/ odd"name'; echo '* text' > .gitattributes; echo 1 > src`)
    trial.act(`git config core.autocrlf true; printf 'b\\n' > test/crlf; rm test/deleted; chmod -x test/mode; rm test/folder; mkdir test/folder; echo x > test/folder/x
rm -r test/sub; ln -s / test/sub; echo z > 'test/ odd"name'; echo n > test/new.test.js; echo c > conftest.py; echo 2 > src; git add -A`)
    const index = trial.act('sha256sum .git/index')
    const diff = await trial.collect()
    const files = testFilesChanged(diff.changes, NONE)
    await restoreTestFiles(trial.workspace, trial.base, files)
    expect(trial.act('sha256sum .git/index')).toBe(index)
    const again = await trial.collect({ label: 'again' })
    expect(again.changes.map((entry) => `${entry.status} ${entry.path}`)).toEqual(['M src', 'A test/new.test.js'])
  })

  it('does nothing when nothing is to be put back', async () => {
    const trial = await startTrial('echo 1 > a')
    trial.act('echo 2 > a')
    await restoreTestFiles(trial.workspace, trial.base, { changed: [], addedConfigs: [] })
    expect(trial.act('cat a')).toBe('2\n')
  })
})
