/**
 * Every path of the state home, in one place.
 *
 * Owns: the layout on disk. Does not own: what the files hold. Made once by the entry files and handed down.
 */
import { lstat } from 'node:fs/promises'
import path from 'node:path'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { CheckpointId, MachineId, ReservationId, RunId, SandboxName } from '../model/ids.js'
import { makeFolder } from '../util/make-folder.js'
import { daemonSocketOf, SHORT_ROOT, socketRootOf } from '../util/socket-path.js'

/** The layout of one state home; every path is absolute. */
export interface Paths {
  home: string
  images: string
  /** Every overlay of this host, in one folder so that backing names are relative. */
  layers: string
  checkpoints: string
  sandboxes: string
  machines: string
  runs: string
  reservations: string
  approvals: string
  /** Private folder of our redis-server. */
  redis: string
  redisSocket: string
  daemonSocket: string
  /** Record of the live daemon: process, version, socket. */
  daemonRecord: string
  daemonLog: string
  /** What callers over TCP must send. */
  token: string
  /** Record of the live worker process. */
  workerRecord: string
  workerLog: string
  /** Where sockets go: the home itself, or a short folder made from its hash. */
  socketRoot: string
  checkpointDirectory(sandbox: SandboxName, checkpoint: CheckpointId): string
  sandboxRecord(name: SandboxName): string
  machineRecord(id: MachineId): string
  /** Folder of one machine's sockets and log; below {@link Paths.socketRoot}. */
  machineDirectory(id: MachineId): string
  runDirectory(run: RunId): string
  /** Folder of one trial's evidence. */
  trialDirectory(run: RunId, label: string, repeat: number): string
  reservationRecord(id: ReservationId): string
}

/**
 * Builds the layout below `home`; touches no disk.
 * @param home absolute path of the state home
 * @param imagesDirectory where base images lie, `<home>/images` by default
 */
export function createPaths(home: string, imagesDirectory?: string): Paths {
  const socketRoot = socketRootOf(home)
  const inHome = (...parts: string[]): string => path.join(home, ...parts)
  return {
    home,
    images: imagesDirectory ?? inHome('images'),
    layers: inHome('layers'),
    checkpoints: inHome('checkpoints'),
    sandboxes: inHome('sandboxes'),
    machines: inHome('machines'),
    runs: inHome('runs'),
    reservations: inHome('reservations'),
    approvals: inHome('approvals'),
    redis: inHome('redis'),
    redisSocket: path.join(socketRoot, 'redis', 'redis.sock'),
    daemonSocket: daemonSocketOf(home),
    daemonRecord: inHome('daemon.json'),
    daemonLog: inHome('daemon.log'),
    token: inHome('token'),
    workerRecord: inHome('worker.json'),
    workerLog: inHome('worker.log'),
    socketRoot,
    checkpointDirectory: (sandbox, checkpoint) => inHome('checkpoints', part(sandbox), part(checkpoint)),
    sandboxRecord: (name) => inHome('sandboxes', `${part(name)}.json`),
    machineRecord: (id) => inHome('machines', `${part(id)}.json`),
    machineDirectory: (id) => path.join(socketRoot, 'machines', part(id)),
    runDirectory: (run) => inHome('runs', part(run)),
    trialDirectory: (run, label, repeat) => inHome('runs', part(run), 'trials', part(label), String(repeat)),
    reservationRecord: (id) => inHome('reservations', `${part(id)}.json`),
  }
}

/**
 * Makes the folders of the layout, readable by this user only.
 * @throws Kosa8Error CONFIG_INVALID when one of them is not ours alone.
 */
export async function preparePaths(paths: Paths): Promise<void> {
  for (const root of new Set([paths.home, paths.socketRoot])) {
    await makeFolder(root, 0o700)
    await checkPrivate(root)
  }
  const folders = [
    paths.images, paths.layers, paths.checkpoints, paths.sandboxes, paths.machines, paths.runs, paths.reservations,
    paths.approvals, paths.redis, path.dirname(paths.redisSocket), path.join(paths.socketRoot, 'machines'),
  ]
  for (const folder of folders) await makeFolder(folder, 0o700)
}

/** In a folder like /tmp somebody else may have made the one we are going to trust. */
async function checkPrivate(folder: string): Promise<void> {
  const found = await lstat(folder)
  const foreign = process.getuid !== undefined && found.uid !== process.getuid()
  const isLinkInTmp = found.isSymbolicLink() && path.dirname(folder) === SHORT_ROOT
  if (!foreign && !isLinkInTmp && (found.isSymbolicLink() || (found.mode & 0o022) === 0)) return
  throw new Kosa8Error('CONFIG_INVALID', `${folder} can be changed by other users, so kosa8 does not keep its state there`, {
    hint: `make it yours alone (chmod 700 ${folder}) or name another folder in KOSA8_HOME`,
    details: { folder },
  })
}

/** One path component; ids and labels are checked where they enter, this is the last line of defence. */
function part(name: string): string {
  if (name === '' || name === '.' || name === '..' || /[/\0]/.test(name)) {
    throw new Error(`not usable as a file name: ${JSON.stringify(name)}`)
  }
  return name
}
