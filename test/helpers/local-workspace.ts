/**
 * A guest's workspace in a temporary folder of this host: the same commands, without a machine.
 */
import { runProgram, spawnProgram } from '../../src/util/spawn.js'
import { Readable } from 'node:stream'
import type { Workspace } from '../../src/git/workspace.js'

/** The agent's small default environment. */
const DEFAULTS = { PATH: process.env['PATH'] ?? '/usr/bin:/bin', HOME: '/nonexistent', LANG: 'C' }

/** A workspace at `path`, with our state in `stateDirectory`. */
export function createLocalWorkspace(path: string, stateDirectory: string): Workspace {
  return {
    path,
    stateDirectory,
    async run(argv, options = {}) {
      const { env, cwd, stdoutBytesMax, onStderr, ...rest } = options
      const result = await runProgram(argv[0]!, argv.slice(1), {
        ...rest, cwd: cwd ?? path, env: { ...DEFAULTS, ...env },
        ...(stdoutBytesMax === undefined ? {} : { outputBytesMax: stdoutBytesMax }),
      })
      onStderr?.(result.stderr)
      return { exitCode: result.code ?? 128, stdout: result.stdout, stderr: result.stderr }
    },
    async stream(argv, options = {}) {
      const child = spawnProgram(argv[0]!, argv.slice(1), {
        cwd: options.cwd ?? path, env: { ...DEFAULTS, ...options.env }, stdio: 'pipe',
      })
      const stderr: Buffer[] = []
      child.stderr!.on('data', (chunk: Buffer) => stderr.push(chunk))
      child.stdin!.on('error', () => undefined)
      const { stdin } = options
      if (stdin instanceof Readable) stdin.pipe(child.stdin!)
      else child.stdin!.end(stdin)
      const ended = new Promise<{ exitCode: number; stderr: string }>((resolve, reject) => {
        child.once('error', reject)
        child.once('close', (code) => resolve({ exitCode: code ?? 128, stderr: Buffer.concat(stderr).toString('utf8') }))
      })
      return { stdout: child.stdout!, ended }
    },
  }
}
