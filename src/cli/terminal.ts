/**
 * A command of the sandbox in the user's own terminal.
 *
 * Owns: raw mode while it runs, so that every key goes to the command, and the size of the window.
 */
import { pipeline } from 'node:stream/promises'
import type { ExecExit } from '../protocol/sandboxes.js'
import type { SandboxProcess } from '../sdk/exec.js'
import type { CliHost } from './host.js'

/**
 * For a command that could not tidy up: back to the screen of the shell and to a line of its own, cursor shown, plain
 * keys, no mouse, plain text. Each is without effect where it is so already.
 */
const RESET = '\x1b[?1047l\x1b[?25h\x1b[?1l\x1b>\x1b[?2004l\x1b[?1004l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[m\r\n'

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
  } catch (error) {
    if (host.terminals.stdout) host.stdout.write(RESET)
    throw error
  } finally {
    host.stdin.unpipe()
    host.stdin.pause()
    host.setRawMode(false)
    stopResizing()
    stopListening()
  }
}
