/**
 * One daemon per home, from before it looks for its machines until it is gone.
 *
 * Owns: that claim. It is an address only one process can listen on, in the kernel's own namespace: free the
 * moment its holder dies, however it dies, with no file left over. The daemon's socket itself comes too late
 * for this: two daemons starting at once would each take the other's half-started machines for abandoned.
 */
import { createHash } from 'node:crypto'
import { connect, createServer, type Server } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { Kosa8Error } from '../errors/kosa8-error.js'

/** How long another daemon may take to begin to answer, or to end, milliseconds. */
const OTHER_DEADLINE_MS = 60_000
const LOOK_AGAIN_MS = 50

/**
 * Claims a home for this process until it ends.
 * @throws DAEMON_UNREACHABLE once another daemon of this home answers on `socketPath`.
 */
export async function claimHome(home: string, socketPath: string): Promise<void> {
  const name = `\0kosa8-${process.getuid?.() ?? 0}-${createHash('sha256').update(home).digest('hex').slice(0, 32)}`
  const deadline = performance.now() + OTHER_DEADLINE_MS
  for (;;) {
    const claim = await listen(name)
    if (claim !== null) {
      claim.unref()
      return
    }
    if (await answers(socketPath) || performance.now() > deadline) {
      throw new Kosa8Error('DAEMON_UNREACHABLE', `another daemon has the home ${home}`)
    }
    await delay(LOOK_AGAIN_MS)
  }
}

/** Null when somebody else listens there. */
async function listen(name: string): Promise<Server | null> {
  const server = createServer((socket) => socket.destroy())
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE') resolve(null)
      else reject(error)
    })
    server.listen(name, () => resolve(server))
  })
}

function answers(socketPath: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = connect(socketPath)
    probe.once('connect', () => { probe.destroy(); resolve(true) })
    probe.once('error', () => resolve(false))
  })
}
