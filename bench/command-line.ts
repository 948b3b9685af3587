/**
 * The product as somebody types it: command lines as processes of their own, in a home of their own.
 *
 * Owns: that home's daemon and its end.
 */
import { mkdir } from 'node:fs/promises'
import path from 'node:path'
import { childEnvironment, readSettings } from '../src/config/environment.js'
import { findPackageRoot } from '../src/util/package-root.js'
import { runProgram } from '../src/util/spawn.js'

const CLI = path.join(findPackageRoot(), 'dist/src/cli/main.js')

/** Runs a command line that must succeed. @returns what it printed, and how long the whole process took */
export type Type = (...args: string[]) => Promise<{ printed: string; ms: number }>

/** Lends a home, made below `folder`, to type command lines in. */
export async function withHome<T>(folder: string, use: (type: Type) => Promise<T>): Promise<T> {
  const home = path.join(folder, 'home')
  await mkdir(home, { recursive: true, mode: 0o700 })
  const env = childEnvironment({ ...readSettings(), home })
  const type: Type = async (...args) => {
    const startedAt = performance.now()
    const { code, stdout, stderr } = await runProgram(process.execPath, [CLI, ...args], { env })
    if (code !== 0) throw new Error(`kosa8 ${args.join(' ')} ended with ${code}: ${stderr.toString()}`)
    return { printed: stdout.toString(), ms: performance.now() - startedAt }
  }
  try {
    return await use(type)
  } finally {
    await type('daemon', 'stop')
  }
}
