/** A clone that is a folder of this machine: what strategies write to /run/kosa8 lies beside the workspace. */
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import type { StrategyContext } from '../../src/model/strategy.js'
import { runProgram } from '../../src/util/spawn.js'
import { temporaryFolder } from '../daemon-server/serve.js'

const PRIVATE_FOLDER = '/run/kosa8'

export interface LocalClone extends StrategyContext {
  /** Output of every command so far. */
  output: string
}

/** A git repository with one committed file, and the context of a trial in it. */
export async function createLocalClone(parameters: Record<string, unknown>): Promise<LocalClone> {
  const root = await temporaryFolder()
  const workspace = path.join(root, 'workspace')
  await mkdir(workspace)
  await writeFile(path.join(workspace, 'file.txt'), 'one\ntwo\nthree\n')
  const environment = { PATH: '/usr/local/bin:/usr/bin:/bin', HOME: root, GIT_CONFIG_NOSYSTEM: '1' }
  const git = (...args: string[]) => runProgram('git', args, { cwd: workspace, env: environment })
  await git('init', '-q')
  await git('add', '.')
  await git('-c', 'user.name=t', '-c', 'user.email=t@example.invalid', 'commit', '-qm', 'start')
  const onHost = (file: string): string => file.startsWith(PRIVATE_FOLDER) ? path.join(root, file) : path.resolve(workspace, file)
  const clone: LocalClone = {
    approach: 'quick', repeat: 2, parameters, workspace, signal: new AbortController().signal, output: '',
    exec: async (argv, options = {}) => {
      const [program, ...args] = argv.map((word) => word.startsWith(`${PRIVATE_FOLDER}/`) ? onHost(word) : word)
      const { code, stdout, stderr } = await runProgram(program as string, args, {
        cwd: options.cwd ?? workspace, env: { ...environment, ...options.env }, timeoutMs: 20_000,
        ...(options.stdin === undefined ? {} : { stdin: options.stdin }),
      })
      clone.output += stdout.toString() + stderr.toString()
      return { exitCode: code ?? 137, stdout: stdout.toString(), stderr: stderr.toString() }
    },
    writeFile: async (file, content, mode = 0o644) => {
      await mkdir(path.dirname(onHost(file)), { recursive: true })
      await writeFile(onHost(file), content)
      await chmod(onHost(file), mode)
    },
    readFile: (file) => readFile(onHost(file)),
    log: () => undefined,
  }
  return clone
}
