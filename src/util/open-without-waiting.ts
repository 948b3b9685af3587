/**
 * Opening files that somebody else has made, for reading.
 *
 * Owns: that this never waits. Opening a named pipe the usual way waits until somebody writes to it, maybe for ever.
 */
import { constants } from 'node:fs'
import { open, type FileHandle } from 'node:fs/promises'

/** What is there, open for reading; whether it is a regular file is the caller's to ask. @throws as `open` does. */
export function openWithoutWaiting(file: string): Promise<FileHandle> {
  return open(file, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
}
