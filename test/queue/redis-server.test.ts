import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Redis } from 'ioredis'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { openRunQueue } from '../../src/queue/bullmq-queue.js'
import { findRedis, startRedis, stopRedis, superviseRedis, type RedisServer, type RedisServerConfig } from '../../src/queue/redis-server.js'
import { createPaths } from '../../src/store/paths.js'
import { RunStore } from '../../src/store/run-store.js'
import { createDeferred } from '../../src/util/deferred.js'
import { isProcessAlive, ownProcessIdentity } from '../../src/util/process-identity.js'

let home: string
let config: RedisServerConfig

beforeEach(async () => {
  home = await mkdtemp(path.join(tmpdir(), 'kosa8-redis-'))
  config = { directory: path.join(home, 'redis'), socketPath: path.join(home, 'redis', 'redis.sock') }
})

afterEach(async () => {
  await stopRedis(config)
  await rm(home, { recursive: true })
})

async function withClient<T>(use: (client: Redis) => Promise<T>): Promise<T> {
  const client = new Redis({ path: config.socketPath })
  try {
    return await use(client)
  } finally {
    client.disconnect()
  }
}

describe('our redis-server', () => {
  it('is private: a socket in a folder of ours and no port, keeps its jobs and drops none', async () => {
    await startRedis(config)
    const settings = await withClient(async (client) => {
      const answer = await client.config('GET', 'port', 'appendonly', 'appendfsync', 'maxmemory-policy', 'save', 'dir')
      return Object.fromEntries(answer.flatMap((name, index) => (index % 2 === 0 ? [[name, answer[index + 1]]] : [])))
    })
    expect(settings).toEqual({
      port: '0', appendonly: 'yes', appendfsync: 'everysec', 'maxmemory-policy': 'noeviction', save: '', dir: config.directory,
    })
    expect((await stat(config.directory)).mode & 0o777).toBe(0o700)
    expect((await stat(config.socketPath)).mode & 0o077).toBe(0)
  })

  it('is found again rather than started twice', async () => {
    const started = await startRedis(config)
    expect(await findRedis(config)).toEqual(started)
    expect(await startRedis(config)).toEqual(started)
  })

  it('is found again even when its record is gone', async () => {
    const started = await startRedis(config)
    await rm(path.join(config.directory, 'redis.json'))
    expect(await startRedis(config)).toEqual(started)
  })

  it('ends with its jobs on disk, and nothing of it is left', async () => {
    const { process } = await startRedis(config)
    await withClient((client) => client.set('job', '1'))
    await stopRedis(config)
    expect(isProcessAlive(process)).toBe(false)
    expect(await findRedis(config)).toBeNull()
    await expect(stat(config.socketPath)).rejects.toMatchObject({ code: 'ENOENT' })
    await startRedis(config)
    expect(await withClient((client) => client.get('job'))).toBe('1')
  })

  it('starts over a stale socket and spares a process that got the number of a former one', async () => {
    await startRedis(config)
    await stopRedis(config)
    await new Promise<void>((resolve) => { const server = createServer().listen(config.socketPath, () => server.close(() => resolve())) })
    await writeFile(config.socketPath, '')
    const own = ownProcessIdentity()
    await writeFile(path.join(config.directory, 'redis.json'), JSON.stringify({ ...own, startTicks: own.startTicks - 1 }))
    const { process } = await startRedis(config)
    expect(process.pid).not.toBe(own.pid)
    expect(isProcessAlive(own)).toBe(true)
  })

  it('is started again with its jobs when it was killed, until nobody watches any more', async () => {
    const first = await startRedis(config)
    await withClient((client) => client.set('job', '1'))
    const stop = new AbortController()
    const restarted = createDeferred<RedisServer>()
    const watching = superviseRedis(config, { onRestart: restarted.resolve, onFailure: restarted.reject }, stop.signal)
    process.kill(first.process.pid, 'SIGKILL')
    const second = await restarted.promise
    expect(second.process).not.toEqual(first.process)
    expect(await withClient((client) => client.get('job'))).toBe('1')
    stop.abort()
    await watching
    expect(isProcessAlive(second.process)).toBe(true)
  })

  it('is started again also when nobody asked to be told', async () => {
    const first = await startRedis(config)
    const stop = new AbortController()
    const watching = superviseRedis(config, {}, stop.signal)
    process.kill(first.process.pid, 'SIGKILL')
    await vi.waitFor(async () => {
      const found = await findRedis(config)
      expect(found === null || found.process.pid === first.process.pid).toBe(false)
    }, 20_000)
    stop.abort()
    await watching
  })

  it('says why it did not start', async () => {
    await startRedis(config)
    await stopRedis(config)
    await writeFile(path.join(config.directory, 'appendonlydir', 'appendonly.aof.manifest'), 'not a manifest\n')
    await expect(startRedis(config)).rejects.toMatchObject({ code: 'QUEUE_UNREACHABLE', message: expect.stringMatching(/did not start: .+/) as string })
    expect(await readFile(path.join(config.directory, 'redis.log'), 'utf8')).not.toBe('')
  })
})

describe('a Redis of the user', () => {
  it('is refused when it may drop jobs', async () => {
    await startRedis(config)
    await withClient((client) => client.config('SET', 'maxmemory-policy', 'allkeys-lru'))
    const opening = openRunQueue({ address: { socketPath: config.socketPath }, journal: new RunStore(createPaths(home)), prefix: 'test' })
    await expect(opening).rejects.toMatchObject({
      code: 'CONFIG_INVALID', message: expect.stringContaining('allkeys-lru') as string, hint: expect.stringContaining('noeviction') as string,
    })
  })
})
