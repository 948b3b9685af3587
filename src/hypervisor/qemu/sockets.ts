/**
 * Unix sockets in a machine's directory.
 *
 * Owns: reaching them whatever the length of the directory's path (the address of a socket holds 107
 * bytes: it is named through a descriptor of its folder), and handing a listening socket to a child, so
 * that we can connect the moment the child is started, without waiting for a file to appear.
 */
import { open, rename, rm } from 'node:fs/promises'
import net from 'node:net'
import path from 'node:path'
import { Kosa8Error } from '../../errors/kosa8-error.js'

/** A socket that listens for a child process. */
export interface ListeningSocket {
  /** Descriptor to be put into the child's `stdio`. */
  descriptor: number
  /** Closes our copy; the file stays, and the child alone accepts. Call it after the spawn. */
  handOver(): Promise<void>
}

/** Makes the socket `name` in `directory` and listens on it. */
export async function listenIn(directory: string, name: string): Promise<ListeningSocket> {
  const folder = await open(directory, 'r')
  const server = net.createServer()
  try {
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject)
      server.listen(`/proc/self/fd/${folder.fd}/${name}.new`, resolve)
    })
    // Closing a server removes the file it was bound to, by name: under its new name it stays.
    await rename(path.join(directory, `${name}.new`), path.join(directory, name))
  } catch (error) {
    server.close()
    await folder.close()
    await rm(path.join(directory, `${name}.new`), { force: true })
    throw error
  }
  return {
    descriptor: descriptorOf(server),
    handOver: async () => {
      await new Promise((resolve) => server.close(resolve))
      await folder.close()
    },
  }
}

/** Node shows the descriptor of a server only here. */
function descriptorOf(server: net.Server): number {
  const { _handle: handle } = server as unknown as { _handle?: { fd?: number } }
  if (typeof handle?.fd !== 'number') throw new Kosa8Error('INTERNAL', 'a listening socket has no descriptor')
  return handle.fd
}

/** Connects to the socket `name` in `directory`. */
export async function connectIn(directory: string, name: string): Promise<net.Socket> {
  const folder = await open(directory, 'r')
  try {
    return await new Promise((resolve, reject) => {
      const socket = net.connect({ path: `/proc/self/fd/${folder.fd}/${name}` })
      socket.once('error', reject)
      socket.once('connect', () => {
        socket.off('error', reject)
        resolve(socket)
      })
    })
  } finally {
    await folder.close()
  }
}
