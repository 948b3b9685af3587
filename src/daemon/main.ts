#!/usr/bin/env node
/**
 * Entry file of kosa8d. `--stay`: go on until told to stop; otherwise it ends once it has nothing to do.
 */
import { childEnvironment, readSettings } from '../config/environment.js'
import { toKosa8Error } from '../errors/kosa8-error.js'
import { openLog } from '../util/log.js'
import { runDaemon } from './daemon.js'
import { claimHome } from './sole-daemon.js'
import { giveUpSpareRoom } from './spare-room.js'

const log = openLog('kosa8d')
const stop = new AbortController()
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => stop.abort())

try {
  const settings = readSettings()
  await giveUpSpareRoom(settings.home)
  await claimHome(settings.home, settings.socketPath)
  await runDaemon({ settings, env: childEnvironment(settings), log, stays: process.argv.includes('--stay'), signal: stop.signal })
  process.exit(0)
} catch (error) {
  log.fatal({ err: error }, 'the daemon could not run')
  process.exit(toKosa8Error(error).exitStatus)
}
