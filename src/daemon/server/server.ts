/**
 * The daemon's HTTP server on its unix socket.
 *
 * Owns: the socket (its owner alone may open it). What is served is `app.ts`. Called by `daemon.ts` and by tests.
 */
import { chmod, rm } from 'node:fs/promises'
import { connect } from 'node:net'
import type { FastifyInstance } from 'fastify'
import { Kosa8Error } from '../../errors/kosa8-error.js'
import { prepareSocketFolder } from '../../util/socket-path.js'
import type { Services } from '../services.js'
import { buildApp, type DaemonServer } from './app.js'

/**
 * Serves `services` on `socketPath`. A socket file nobody listens on is replaced.
 * @throws DAEMON_UNREACHABLE when somebody does listen on it.
 */
export async function startServer(socketPath: string, services: Services): Promise<DaemonServer> {
  await prepareSocketFolder(socketPath)
  await removeStaleSocket(socketPath)
  const { app, server } = await buildApp(services, null)
  await listenPrivately(app, socketPath)
  return server
}

/** Binds the socket with rights for its owner only from its first moment. */
async function listenPrivately(app: FastifyInstance, socketPath: string): Promise<void> {
  const formerMask = process.umask(0o177)
  try {
    await new Promise<void>((resolve, reject) => {
      app.server.once('error', reject)
      app.server.listen(socketPath, resolve)
      process.umask(formerMask)
    })
  } finally {
    process.umask(formerMask)
  }
  await chmod(socketPath, 0o600)
}

async function removeStaleSocket(socketPath: string): Promise<void> {
  const answers = await new Promise<boolean>((resolve) => {
    const probe = connect(socketPath)
    probe.once('connect', () => { probe.destroy(); resolve(true) })
    probe.once('error', () => resolve(false))
  })
  if (answers) throw new Kosa8Error('DAEMON_UNREACHABLE', `another daemon listens on ${socketPath}`)
  await rm(socketPath, { force: true })
}
