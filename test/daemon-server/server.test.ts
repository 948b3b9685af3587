import { once } from 'node:events'
import { mkdir, stat, symlink, writeFile } from 'node:fs/promises'
import { request as httpRequest } from 'node:http'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { startServer } from '../../src/daemon/server/server.js'
import { Kosa8Error } from '../../src/errors/kosa8-error.js'
import { callMethod, openReservation, openStream, readBounded } from '../../src/protocol/client.js'
import { parseEvents } from '../../src/protocol/streams.js'
import { MemoryServices, RUN_ID } from './memory-services.js'
import { serveHome, temporaryFolder } from './serve.js'

const MACHINE = { image: 'base', memoryMib: 512, cpus: 1, egress: 'deny' } as const

function wantedReservation(trial: string) {
  return { run: RUN_ID, trial, label: 'a', attempt: 1, checkpoint: 'c', memoryMib: 512, bytes: 2000 }
}

describe('the daemon server', () => {
  it('lets only its owner open the socket', async () => {
    const { socketPath } = await serveHome()
    expect((await stat(socketPath)).mode & 0o777).toBe(0o600)
  })

  it('answers the methods of the table', async () => {
    const { socketPath } = await serveHome()
    const made = await callMethod(socketPath, 'createSandbox', { body: { name: 'db', ...MACHINE } })
    expect(made).toMatchObject({ name: 'db', state: 'running', repository: null })
    expect(await callMethod(socketPath, 'listSandboxes', {})).toEqual([made])
    await callMethod(socketPath, 'createSnapshot', { params: { name: 'db' }, body: { id: 'db-ckpt-1', label: 'one' } })
    expect(await callMethod(socketPath, 'listSnapshots', { params: { name: 'db' } })).toMatchObject([{ id: 'db-ckpt-1', label: 'one' }])
    expect(await callMethod(socketPath, 'restoreSnapshot', { params: { name: 'db' }, body: { snapshot: 'db-ckpt-1' } })).toMatchObject({ restoreMs: 90 })
    await callMethod(socketPath, 'deleteSnapshot', { params: { name: 'db', id: 'db-ckpt-1' } })
    await callMethod(socketPath, 'deleteSandbox', { params: { name: 'db' } })
    expect(await callMethod(socketPath, 'listSandboxes', {})).toEqual([])
    expect(await callMethod(socketPath, 'status', {})).toMatchObject({ accelerator: { name: 'tcg' } })
  })

  it('rebuilds an error of a service with code, message, hint and details', async () => {
    const { socketPath } = await serveHome()
    await callMethod(socketPath, 'createSandbox', { body: { name: 'db', ...MACHINE } })
    const error = await callMethod(socketPath, 'createSandbox', { body: { name: 'db', ...MACHINE } }).catch((thrown: unknown) => thrown)
    expect(Kosa8Error.isInstance(error)).toBe(true)
    expect(error).toMatchObject({ code: 'SANDBOX_EXISTS', message: 'there is a sandbox db', hint: 'take another name', details: { name: 'db' } })
  })

  it('refuses a field nobody knows and says which', async () => {
    const { socketPath } = await serveHome()
    const body = { name: 'db', ...MACHINE, memory: 1 }
    await expect(callMethod(socketPath, 'createSandbox', { body })).rejects.toMatchObject({ code: 'USAGE', message: 'request: Unrecognized key: "memory"' })
  })

  it('refuses a value outside its bounds and names the field', async () => {
    const { socketPath } = await serveHome()
    const refused = callMethod(socketPath, 'createSandbox', { body: { name: 'No Name', ...MACHINE } })
    await expect(refused).rejects.toMatchObject({ code: 'USAGE', message: 'name "No Name": use 1 to 40 lower-case letters, digits and dashes' })
  })

  it('answers text that is no JSON, and paths nobody serves, as wrong use', async () => {
    const { socketPath } = await serveHome()
    await expect(openStream(socketPath, { verb: 'POST', path: '/v1/runs', content: 'x' })).rejects.toMatchObject({ code: 'USAGE' })
    await expect(openStream(socketPath, { verb: 'GET', path: '/v1/nothing' })).rejects.toMatchObject({ code: 'USAGE', message: 'the daemon has no GET /v1/nothing' })
  })

  it('tells a running call when its caller has gone', async () => {
    const { socketPath, services } = await serveHome()
    services.sandboxes.createWaits = true
    const leaving = new AbortController()
    const call = callMethod(socketPath, 'createSandbox', { body: { name: 'db', ...MACHINE } }, leaving.signal)
    await services.sandboxes.createStarted.promise
    leaving.abort()
    await expect(call).rejects.toMatchObject({ code: 'CANCELLED' })
    await expect.poll(() => services.sandboxes.createWasAborted).toBe(true)
  })

  it('moves a file in and out unchanged, with its mode', async () => {
    const { socketPath, services } = await serveHome()
    await callMethod(socketPath, 'createSandbox', { body: { name: 'db', ...MACHINE } })
    const content = Buffer.from(Array.from({ length: 300_000 }, (_, index) => (index * 7) % 256))
    await openStream(socketPath, { verb: 'PUT', path: '/v1/sandboxes/db/file?path=a%20b&mode=755', content })
    const back = await readBounded(await openStream(socketPath, { verb: 'GET', path: '/v1/sandboxes/db/file?path=a%20b' }))
    expect(back.equals(content)).toBe(true)
    expect(services.sandboxes.fileModes).toEqual([0o755])
  })

  it('replays the events of a run from the number asked for', async () => {
    const { socketPath, services } = await serveHome()
    for (const message of ['one', 'two', 'three']) services.runs.push({ type: 'run-phase', phase: 'running', message })
    services.runs.push({ type: 'run-end', phase: 'completed' })
    const answer = await openStream(socketPath, { verb: 'GET', path: `/v1/runs/${RUN_ID}/events?from=2` })
    const seen: string[] = []
    for await (const { id, data } of parseEvents(answer)) seen.push(`${id} ${(JSON.parse(data) as { type: string }).type}`)
    expect(seen).toEqual(['2 run-phase', '3 run-end'])
  })

  it('grants memory on a held connection and takes it back when that closes', async () => {
    const { socketPath, services } = await serveHome()
    services.reservations.waits = ['needs 310 MiB, 120 MiB free']
    const holding = new AbortController()
    const lines = openReservation(socketPath, wantedReservation('t1'), { signal: holding.signal })
    expect((await lines.next()).value).toEqual({ type: 'waiting', message: 'needs 310 MiB, 120 MiB free' })
    expect((await lines.next()).value).toEqual({ type: 'granted', id: 'v-t1', bytes: 2000 })
    expect(await callMethod(socketPath, 'reportUsage', { params: { id: 'v-t1' }, body: { privateBytes: 1, peakPrivateBytes: 5 } })).toEqual({ bytes: 5 })
    const released = once(services.reservations.released, 'released')
    holding.abort()
    expect(await released).toEqual(['v-t1'])
    expect((await lines.next()).done).toBe(true)
  })

  it('takes over a reservation by its id, and tells in the last line why one is refused', async () => {
    const { socketPath, services } = await serveHome()
    const holding = new AbortController()
    const adopted = openReservation(socketPath, wantedReservation('t1'), { signal: holding.signal, adopt: 'v-old' })
    expect((await adopted.next()).value).toMatchObject({ type: 'granted', id: 'v-old' })
    holding.abort()
    services.reservations.refusal = new Kosa8Error('MEMORY_INSUFFICIENT', 'needs 9 GiB, 4 GiB in all')
    const refused = openReservation(socketPath, wantedReservation('t2'), { signal: new AbortController().signal })
    expect((await refused.next()).value).toMatchObject({ type: 'error', error: { code: 'MEMORY_INSUFFICIENT' } })
  })

  it('serves regular files of a run, and nothing outside its folder', async () => {
    const { socketPath, services, home } = await serveHome()
    services.runs.folder = path.join(home, 'run')
    await mkdir(path.join(home, 'run', 'trials'), { recursive: true })
    await writeFile(path.join(home, 'run', 'trials', 'log'), 'lines')
    await writeFile(path.join(home, 'secret'), 'secret')
    await symlink(path.join(home, 'secret'), path.join(home, 'run', 'link'))
    await symlink(home, path.join(home, 'run', 'up'))
    const read = async (file: string) => (await readBounded(await openStream(socketPath, { verb: 'GET', path: `/v1/runs/${RUN_ID}/files/${file}` }))).toString()
    expect(await read('trials/log')).toBe('lines')
    for (const outside of ['..%2fsecret', 'link', 'up/secret', 'trials', 'nothing', '..%2f..%2f..%2f..%2fetc%2fpasswd']) {
      await expect(read(outside), outside).rejects.toMatchObject({ code: 'USAGE' })
    }
  })

  it('ends open event streams when it closes', async () => {
    const { socketPath, server } = await serveHome()
    const answer = await openStream(socketPath, { verb: 'GET', path: `/v1/runs/${RUN_ID}/events` })
    answer.resume()
    const ended = once(answer, 'close')
    await server.close()
    await ended
    await expect(callMethod(socketPath, 'status', {})).rejects.toMatchObject({ code: 'DAEMON_UNREACHABLE', details: { reached: false } })
  })

  it('replaces a socket nobody listens on and refuses one that is in use', async () => {
    const socketPath = path.join(await temporaryFolder(), 'd.sock')
    await writeFile(socketPath, '')
    const server = await startServer(socketPath, new MemoryServices())
    await expect(startServer(socketPath, new MemoryServices())).rejects.toMatchObject({ code: 'DAEMON_UNREACHABLE' })
    await callMethod(socketPath, 'status', {})
    await server.close()
  })

  it('refuses an upgrade that is no exec connection', async () => {
    const { socketPath } = await serveHome()
    const outgoing = httpRequest({ socketPath, path: '/v1/status', headers: { connection: 'Upgrade', upgrade: 'websocket' } })
    outgoing.end()
    const [answer] = await once(outgoing, 'response') as [{ statusCode: number }]
    expect(answer.statusCode).toBe(400)
  })
})
