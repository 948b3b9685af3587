/** A home in a temporary folder with a real server over in-memory services, removed after the test. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { onTestFinished } from 'vitest'
import { readSettings, type Settings } from '../../src/config/environment.js'
import type { DaemonServer } from '../../src/daemon/server/app.js'
import { startServer } from '../../src/daemon/server/server.js'
import { MemoryServices } from './memory-services.js'

export interface ServedHome {
  home: string
  settings: Settings
  socketPath: string
  services: MemoryServices
  server: DaemonServer
}

/** Makes a temporary folder that goes with the test. */
export async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'kosa8-test-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  return folder
}

export function settingsOf(home: string): Settings {
  return readSettings({ KOSA8_HOME: home, NO_COLOR: '1', CI: '1' })
}

/** Serves fresh services on a fresh home. */
export async function serveHome(): Promise<ServedHome> {
  const home = await temporaryFolder()
  const settings = settingsOf(home)
  const services = new MemoryServices()
  const server = await startServer(settings.socketPath, services)
  onTestFinished(() => server.close())
  return { home, settings, socketPath: settings.socketPath, services, server }
}
