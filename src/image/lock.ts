/**
 * One builder at a time per images folder, across processes.
 *
 * Owns: the lock. It is the kernel's (flock(2), held by a small child that ends when its pipe to us
 * closes), so it is free the moment its holder dies, however it dies. Called by `build.ts`.
 */
import { createInterface } from 'node:readline'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { createDeferred } from '../util/deferred.js'
import { saysDiskFull } from '../util/disk-space.js'
import { spawnProgram } from '../util/spawn.js'

const HOLD = 'flock --exclusive --nonblock 9 || { echo waiting; flock --exclusive 9; }; echo locked; exec cat >/dev/null'

/**
 * Runs `work` while holding the lock on `file`.
 * @param onWait called once when another process holds the lock
 * @throws Kosa8Error CANCELLED when `signal` aborts while waiting.
 */
export async function withLock<T>(
  file: string, options: { signal?: AbortSignal | undefined, onWait: () => void }, work: () => Promise<T>,
): Promise<T> {
  // Detached: Ctrl-C in a terminal must not free the lock before we are done tidying up.
  const holder = spawnProgram('sh', ['-c', `exec 9>>"$1"; ${HOLD}`, 'sh', file], {
    stdio: ['pipe', 'pipe', 'pipe'], detached: true,
  })
  const locked = createDeferred<void>()
  const closed = createDeferred<void>()
  let complaint = ''
  holder.stderr?.on('data', (chunk: Buffer) => { complaint = (complaint + chunk.toString()).slice(-500) })
  holder.stdin?.on('error', () => undefined)
  holder.once('error', locked.reject)
  holder.once('close', () => {
    closed.resolve()
    locked.reject(new Kosa8Error(saysDiskFull(complaint) ? 'DISK_FULL' : 'INTERNAL', `cannot lock ${file}: ${complaint.trim()}`))
  })
  createInterface({ input: holder.stdout! }).on('line', (line) => {
    if (line === 'locked') locked.resolve()
    else options.onWait()
  })
  const cancel = (): void => {
    locked.reject(new Kosa8Error('CANCELLED', 'cancelled while another build was going on'))
  }
  options.signal?.addEventListener('abort', cancel, { once: true })
  try {
    await locked.promise
    return await work()
  } finally {
    options.signal?.removeEventListener('abort', cancel)
    if (holder.pid !== undefined && holder.exitCode === null && holder.signalCode === null) process.kill(-holder.pid, 'SIGTERM')
    await closed.promise
  }
}
