/**
 * Routes whose body is a file or a patch.
 *
 * Owns: streaming both ways, and the rule that of a run's folder only regular files inside it are served:
 * links are not followed, since parts of the folder were written by guests.
 */
import { constants } from 'node:fs'
import { open, realpath } from 'node:fs/promises'
import path from 'node:path'
import type { Readable } from 'node:stream'
import type { FastifyInstance } from 'fastify'
import { z } from 'zod'
import { Kosa8Error } from '../../errors/kosa8-error.js'
import { sandboxNameSchema } from '../../model/ids.js'
import { diffQuerySchema, runIdSchema } from '../../protocol/runs.js'
import { SANDBOX_FILE_BYTES_MAX, guestPathQuerySchema } from '../../protocol/sandboxes.js'
import { RUN_FILE_BYTES_MAX, STREAM_PATHS } from '../../protocol/streams.js'
import type { Services } from '../services.js'
import { signalOfCaller } from './method-routes.js'
import { validate } from './validation.js'

const BYTES = 'application/octet-stream'

/** Registers files of sandboxes, files of runs, and diffs. */
export function registerFileRoutes(app: FastifyInstance, { sandboxes, runs }: Services): void {
  const sandboxParams = z.strictObject({ name: sandboxNameSchema })
  const fileParams = z.strictObject({ id: runIdSchema, '*': z.string().min(1).max(4096) })
  const runParams = z.strictObject({ id: runIdSchema })

  app.register(async (scope) => {
    scope.addContentTypeParser(BYTES, { bodyLimit: SANDBOX_FILE_BYTES_MAX }, (_request, payload, done) => done(null, payload))
    scope.put(STREAM_PATHS.sandboxFile, { bodyLimit: SANDBOX_FILE_BYTES_MAX }, async (request, reply) => {
      const { name } = validate(sandboxParams, request.params, 'path')
      const { path: guestPath, mode } = validate(guestPathQuerySchema, request.query, 'query')
      const bits = mode === undefined ? undefined : Number.parseInt(mode, 8)
      await sandboxes.writeFile(name, guestPath, request.body as Readable, bits, signalOfCaller(request, reply))
      return reply.send({ ok: true })
    })
  })

  app.get(STREAM_PATHS.sandboxFile, async (request, reply) => {
    const { name } = validate(sandboxParams, request.params, 'path')
    const { path: guestPath } = validate(guestPathQuerySchema, request.query, 'query')
    return reply.type(BYTES).send(await sandboxes.readFile(name, guestPath))
  })

  app.get(STREAM_PATHS.runFile, async (request, reply) => {
    const { id, '*': relative } = validate(fileParams, request.params, 'path')
    return reply.type(BYTES).send(await openInside(await runs.directory(id), relative))
  })

  app.get(STREAM_PATHS.runDiff, async (request, reply) => {
    const { id } = validate(runParams, request.params, 'path')
    const { a, b } = validate(diffQuerySchema, request.query, 'query')
    return reply.type('text/x-patch').send(await runs.diff(id, a, b ?? null))
  })
}

/**
 * Opens a regular file below `folder` for reading.
 * @throws USAGE when there is no such file inside, LIMIT_EXCEEDED when it is too large to serve.
 */
async function openInside(folder: string, relative: string): Promise<Readable> {
  const missing = new Kosa8Error('USAGE', `the run's folder has no file ${relative}`)
  const root = await realpath(folder).catch(() => { throw missing })
  const wanted = path.join(root, relative)
  const parent = await realpath(path.dirname(wanted)).catch(() => { throw missing })
  if (parent !== path.dirname(wanted) || !wanted.startsWith(root + path.sep)) throw missing
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK
  const handle = await open(wanted, flags).catch(() => { throw missing })
  try {
    const found = await handle.stat()
    if (!found.isFile()) throw missing
    if (found.size > RUN_FILE_BYTES_MAX) {
      throw new Kosa8Error('LIMIT_EXCEEDED', `${relative} has ${found.size} bytes, more than ${RUN_FILE_BYTES_MAX}`)
    }
    // A log may grow while it is read: what was there at the beginning is served.
    return handle.createReadStream(found.size === 0 ? {} : { end: found.size - 1 })
  } catch (error) {
    await handle.close()
    throw error
  }
}
