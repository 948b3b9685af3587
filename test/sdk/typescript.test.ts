/** Projects in TypeScript that use the built package, under the strictest of its settings. */
import path from 'node:path'
import ts from 'typescript'
import { expect, it } from 'vitest'
import { findPackageRoot } from '../../src/util/package-root.js'

/** Inside the package, so that its own name leads to its `exports`. */
const FILE = path.join(findPackageRoot(), 'test/sdk/project.mts')

/** What the compiler says of a program, library declarations included. */
function check(program: string): string[] {
  const options: ts.CompilerOptions = {
    noEmit: true, strict: true, skipLibCheck: false, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, noImplicitOverride: true,
    verbatimModuleSyntax: true, types: ['node'], target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.NodeNext,
  }
  const host = ts.createCompilerHost(options)
  host.fileExists = (file) => file === FILE || ts.sys.fileExists(file)
  host.readFile = (file) => file === FILE ? program : ts.sys.readFile(file)
  return ts.getPreEmitDiagnostics(ts.createProgram([FILE], options, host)).map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, ' '))
}

it('the guide\'s programs, and a strategy module, are right as they stand', () => {
  expect(check(`
import { Kosa8Client, MemoryCheckpointStore, FileCheckpointStore, type CheckpointStore } from '@kosa8/sdk'
import type { Strategy } from '@kosa8/sdk/strategy'

const shared = new Kosa8Client()
console.log('default store:', shared.checkpoints.store.path)
const isolated = new Kosa8Client({ checkpointStore: new MemoryCheckpointStore() })
const perJob = new Kosa8Client({ checkpointStore: new FileCheckpointStore('/tmp/k8d/job-42-checkpoints.json') })
const file: string | undefined = perJob.checkpoints.store.path
const c = await isolated.checkpoint('scratch', { label: 'private' })
const store: CheckpointStore = { load: () => shared.checkpoints.store.load(), update: (change) => shared.checkpoints.store.update(change) }
const rw = await isolated.rewind('scratch', { to: 'private' })
console.log(\`rewound to \${rw.checkpoint.id} in \${rw.restore_ms}ms; dropped\`, rw.dropped, c.checkpoint.label, file, store)
await isolated.deleteSandbox('scratch').then((r) => console.log(r))

const strategy: Strategy = {
  async run(clone) {
    const { exitCode } = await clone.exec(['npm', 'test'])
    return { exitCode, notes: [\`approach \${clone.approach}\`] }
  },
}
export default strategy
`)).toEqual([])
})
