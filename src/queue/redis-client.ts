/**
 * Connections to Redis.
 *
 * Owns: where Redis is, how long to wait for it, and the checks that make it fit for a queue. Used by
 * the queue and by the keeper of our own server.
 */
import { Redis, type RedisOptions } from 'ioredis'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { saysDiskFull } from '../util/disk-space.js'

/** Where Redis is: our own server's socket, or a URL of the user's. */
export type RedisAddress = { socketPath: string } | { url: string }

/** Between two attempts to connect again: quick at first, never more than this, milliseconds. */
const RECONNECT_DELAY_MAX_MS = 1000
const RECONNECT_STEP_MS = 50

/**
 * Connects and waits until Redis answers; the connection then comes back by itself whenever Redis does.
 * @throws Kosa8Error QUEUE_UNREACHABLE when it does not answer within `timeoutMs`; CONFIG_INVALID when
 *   it may throw data away.
 */
export async function connectRedis(address: RedisAddress, timeoutMs: number): Promise<Redis> {
  const client = createClient(address, {
    // A command sent while Redis is away waits for it instead of failing.
    maxRetriesPerRequest: null,
    retryStrategy: (times) => Math.min(times * RECONNECT_STEP_MS, RECONNECT_DELAY_MAX_MS),
  })
  try {
    await waitUntilReady(client, address, timeoutMs)
    await checkPolicy(client, address)
    return client
  } catch (error) {
    client.disconnect()
    throw error
  }
}

/** A connection that is not opened again once it is lost, for those who watch over the server. */
export async function connectOnce(address: RedisAddress, timeoutMs: number): Promise<Redis> {
  const client = createClient(address, { retryStrategy: () => null, maxRetriesPerRequest: 0 })
  try {
    await waitUntilReady(client, address, timeoutMs)
    return client
  } catch (error) {
    client.disconnect()
    throw error
  }
}

/** The error for a Redis that is not there. */
export function unreachable(address: RedisAddress, cause: unknown): Kosa8Error {
  const isOurs = 'socketPath' in address
  const where = placeOf(address)
  return new Kosa8Error('QUEUE_UNREACHABLE', `the queue's Redis at ${where} does not answer: ${messageOf(cause)}`, {
    hint: isOurs
      ? 'start it again with: kosa8 daemon stop && kosa8 daemon start'
      : 'check REDIS_URL and that this server runs and can be reached from here',
    details: { address: where },
    cause,
  })
}

/**
 * What a failed command means: a Redis whose disk is full answers and writes nothing, or ends under the command. Anything else stays
 * as it is.
 */
export function explainRefusal(address: RedisAddress, thrown: unknown): unknown {
  const words = messageOf(thrown)
  if (/^(Command aborted due to connection close|Connection is closed)/.test(words)) return unreachable(address, thrown)
  if (!words.startsWith('MISCONF')) return thrown
  const isOurs = 'socketPath' in address
  const message = `the queue's Redis at ${placeOf(address)} refuses to write: ${words}`
  if (isOurs && saysDiskFull(words)) return new Kosa8Error('DISK_FULL', message, { cause: thrown })
  return new Kosa8Error('QUEUE_UNREACHABLE', message, { hint: isOurs ? undefined : 'look at the disk of that Redis, then run the same command again', cause: thrown })
}

function createClient(address: RedisAddress, options: Pick<RedisOptions, 'maxRetriesPerRequest' | 'retryStrategy'>): Redis {
  const client = 'url' in address ? new Redis(address.url, options) : new Redis({ ...options, path: address.socketPath })
  // Every loss is reported here as well as by the commands it hits; without a listener it would end the process.
  client.on('error', () => undefined)
  return client
}

async function waitUntilReady(client: Redis, address: RedisAddress, timeoutMs: number): Promise<void> {
  let last: unknown = new Error(`no answer within ${timeoutMs} ms`)
  const onError = (error: unknown): void => { last = error }
  client.on('error', onError)
  let timer: NodeJS.Timeout | undefined
  try {
    await new Promise<void>((resolve, reject) => {
      client.once('ready', () => resolve())
      client.once('end', () => reject(unreachable(address, last)))
      timer = setTimeout(() => reject(unreachable(address, last)), timeoutMs)
    })
  } finally {
    clearTimeout(timer)
    client.off('error', onError)
  }
}

/** With any other policy Redis drops keys when it is full: jobs would vanish without a trace. */
async function checkPolicy(client: Redis, address: RedisAddress): Promise<void> {
  const policy = /^maxmemory_policy:(\S+)/m.exec(await client.info('memory'))?.[1]
  if (policy === undefined || policy === 'noeviction') return
  const where = placeOf(address)
  throw new Kosa8Error('CONFIG_INVALID', `the Redis at ${where} may drop queued jobs: its maxmemory-policy is ${policy}`, {
    hint: 'set it with: redis-cli config set maxmemory-policy noeviction',
    details: { policy },
  })
}

/** Where it is, without a password. */
function placeOf(address: RedisAddress): string {
  return 'url' in address ? address.url.replace(/\/\/[^@/]*@/, '//') : address.socketPath
}

function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown)
}
