/**
 * The daemon's HTTP server on its unix socket.
 *
 * Owns: the socket (its owner alone may open it), limits, validation, the form of errors, telling services
 * that a caller has gone, closing in order. Does not own what a call does: that is `Services`. Called by
 * `daemon/main.ts` and by tests.
 */
import { chmod, rm } from 'node:fs/promises'
import { connect, type Socket } from 'node:net'
import fastify, { type FastifyInstance } from 'fastify'
import { Kosa8Error } from '../../errors/kosa8-error.js'
import { RUN_REQUEST_BYTES_MAX } from '../../protocol/runs.js'
import { prepareSocketFolder } from '../../util/socket-path.js'
import type { Services } from '../services.js'
import { sendError } from './errors.js'
import { handleExecUpgrade } from './exec-route.js'
import { registerFileRoutes } from './file-routes.js'
import { registerMethodRoutes } from './method-routes.js'
import { registerStreamRoutes } from './stream-routes.js'

/** A listening server. */
export interface DaemonServer {
  /** Takes no new calls, ends streams and exec connections, waits for calls that are being answered. */
  close(): Promise<void>
}

/** How long calls being answered may take once the server closes, milliseconds. */
const CLOSE_DEADLINE_MS = 5_000

/**
 * Serves `services` on `socketPath`. A socket file nobody listens on is replaced.
 * @throws DAEMON_UNREACHABLE when somebody does listen on it.
 */
export async function startServer(socketPath: string, services: Services): Promise<DaemonServer> {
  await prepareSocketFolder(socketPath)
  await removeStaleSocket(socketPath)
  const closing = new AbortController()
  const app = buildApp(services, closing.signal)
  const connections = new Set<Socket>()
  app.server.on('connection', (socket: Socket) => {
    connections.add(socket)
    socket.once('close', () => connections.delete(socket))
  })
  app.server.on('upgrade', (request, socket, head) => handleExecUpgrade(services.sandboxes, request, socket, head))
  await app.ready()
  await listenPrivately(app, socketPath)
  return {
    close: async () => {
      closing.abort()
      const deadline = setTimeout(() => connections.forEach((socket) => socket.destroy()), CLOSE_DEADLINE_MS)
      try {
        await app.close()
      } finally {
        clearTimeout(deadline)
        connections.forEach((socket) => socket.destroy())
      }
    },
  }
}

function buildApp(services: Services, closing: AbortSignal): FastifyInstance {
  const app = fastify({
    bodyLimit: RUN_REQUEST_BYTES_MAX,
    forceCloseConnections: 'idle',
    // A sandbox may take minutes to be made; a caller that has gone is noticed by its connection.
    requestTimeout: 0,
  })
  app.setErrorHandler((error, _request, reply) => sendError(reply, error))
  app.setNotFoundHandler((request, reply) =>
    sendError(reply, new Kosa8Error('USAGE', `the daemon has no ${request.method} ${request.url.split('?')[0]}`)))
  registerMethodRoutes(app, services)
  registerStreamRoutes(app, services, closing)
  registerFileRoutes(app, services)
  return app
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
