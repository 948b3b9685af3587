/**
 * The log of a process that runs in the background: JSON lines on its standard output.
 *
 * Owns: that a log which cannot be written, the disk being full, ends nothing and holds up nothing.
 */
import { writeSync } from 'node:fs'
import pino, { type Logger } from 'pino'

/** Opens the log of process `name`. Lines for which there is no room are lost. */
export function openLog(name: string): Logger {
  return pino({ name }, { write: writeLine })
}

/** Not pino's own writer: that ends the process when a write fails. */
function writeLine(line: string): void {
  try {
    writeSync(process.stdout.fd, line)
  } catch {
    // There is nowhere else to say it.
  }
}
