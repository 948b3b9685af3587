/** Runs a TypeScript file of ours in a process of its own, for tests with two writers or a kill. */
import type { ChildProcess } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { runProgram, spawnProgram } from '../../src/util/spawn.js'

const loader = fileURLToPath(new URL('../../node_modules/jiti/lib/jiti-cli.mjs', import.meta.url))

/** Runs it to its end and returns what it printed; anything but exit status 0 is an error. */
export async function runScript(script: URL, args: string[]): Promise<string> {
  const result = await runProgram(process.execPath, [loader, fileURLToPath(script), ...args], { timeoutMs: 60_000 })
  if (result.code !== 0) throw new Error(`${script.pathname} ended with ${result.code}: ${result.stderr.toString()}`)
  return result.stdout.toString()
}

/** Starts it and leaves it to the caller, who must end it; standard output is a pipe. */
export function startScript(script: URL, args: string[]): ChildProcess {
  return spawnProgram(process.execPath, [loader, fileURLToPath(script), ...args], { stdio: ['ignore', 'pipe', 'inherit'] })
}
