/**
 * The queue of one state home: its Redis, and a place in it that no other home shares.
 *
 * Owns: where daemon and worker of a home meet. A checkpoint lies on one host, so a trial is for the workers of
 * that home only, also where several homes or hosts use one Redis.
 */
import { createHash } from 'node:crypto'
import { hostname } from 'node:os'
import { openRunQueue } from '../queue/bullmq-queue.js'
import type { AttemptJournal, RunQueue } from '../queue/queue.js'
import type { Paths } from '../store/paths.js'

/** What the queue of a home is opened with. */
export interface HostQueueConfig {
  /** Address of a Redis of the user's own; null: the private one of this home. */
  redisUrl: string | null
  paths: Pick<Paths, 'home' | 'redisSocket'>
  journal: AttemptJournal
}

/** Opens it. @throws Kosa8Error QUEUE_UNREACHABLE, CONFIG_INVALID */
export async function openHostQueue({ redisUrl, paths, journal }: HostQueueConfig): Promise<RunQueue> {
  const place = createHash('sha256').update(`${hostname()}\0${paths.home}`).digest('hex').slice(0, 16)
  return openRunQueue({
    address: redisUrl === null ? { socketPath: paths.redisSocket } : { url: redisUrl }, journal, prefix: `kosa8-${place}`,
  })
}
