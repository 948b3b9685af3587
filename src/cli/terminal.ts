/**
 * A command of the sandbox in the user's own terminal.
 *
 * Owns: raw mode while it runs, so that every key goes to the command, and the size of the window.
 */
import { pipeline } from 'node:stream/promises'
import type { ExecExit } from '../protocol/sandboxes.js'
import type { SandboxProcess } from '../sdk/exec.js'
import type { CliHost } from './host.js'

/** Joins terminal and command until the command ends. The terminal is as before then, whatever happened. */
export async function joinTerminal(host: CliHost, process: SandboxProcess): Promise<ExecExit> {
  const stopResizing = host.onResize(() => process.resize(host.terminalSize()))
  const stopListening = host.onSignal(() => process.close())
  host.setRawMode(true)
  try {
    if (process.stdin !== null) host.stdin.pipe(process.stdin)
    process.stderr.resume()
    const [exit] = await Promise.all([process.exited, pipeline(process.stdout, host.stdout, { end: false })])
    return exit
  } finally {
    host.stdin.unpipe()
    host.stdin.pause()
    host.setRawMode(false)
    stopResizing()
    stopListening()
  }
}
