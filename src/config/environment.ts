/**
 * Settings from the environment.
 *
 * Owns: being the only reader of `process.env`, and the one typed object it becomes. Called by entry files
 * (CLI, daemon, workers, set-up) and by the SDK for its defaults.
 */
import { readFileSync } from 'node:fs'
import { homedir } from 'node:os'
import path from 'node:path'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { HostProxies } from '../model/egress.js'
import { parseDaemonToken, parseDaemonUrl, type RemoteDaemon } from '../model/remote-daemon.js'
import { daemonSocketOf } from '../util/socket-path.js'
import { parseMemoryMib } from './units.js'

/** Everything the environment can say. All paths are absolute. */
export interface Settings {
  /** Folder of all state: KOSA8_HOME, else `~/.kosa8`. */
  home: string
  /** Folder of base images: KOSA8_IMAGES_DIR, else `<home>/images`. */
  imagesDirectory: string
  /** Socket of this home's daemon. */
  socketPath: string
  /** A daemon on another host: KOSA8_URL with KOSA8_TOKEN or KOSA8_TOKEN_FILE; null: this host's own. */
  remote: RemoteDaemon | null
  /** REDIS_URL; null: a redis-server of our own. */
  redisUrl: string | null
  /** Memory all machines together may be promised, bytes: KOSA8_MEMORY_BUDGET; null: what the host has, less a reserve. */
  memoryBudgetBytes: number | null
  /** Certificates beyond the usual that guests with network access are to trust: NODE_EXTRA_CA_CERTS or SSL_CERT_FILE. */
  caBundle: string | null
  /** Proxies the host itself goes out through: HTTP_PROXY, HTTPS_PROXY, NO_PROXY, in lower case first. */
  hostProxies: HostProxies
  /** NO_COLOR is set. */
  noColor: boolean
  /** CI is set: progress is printed as plain lines. */
  isCi: boolean
}

/** What names a daemon on another host. */
const REMOTE_VARIABLES = ['KOSA8_URL', 'KOSA8_TOKEN', 'KOSA8_TOKEN_FILE']

/** What names certificates, for Node.js and OpenSSL as for us: relative to the folder a program is started in. */
const BUNDLE_VARIABLES = ['NODE_EXTRA_CA_CERTS', 'SSL_CERT_FILE']

/** Reads the settings. @throws CONFIG_INVALID for a relative path, an address of the wrong form, a token that is not there. */
export function readSettings(environment: NodeJS.ProcessEnv = process.env): Settings {
  const home = readPath(environment, 'KOSA8_HOME') ?? path.join(homedir(), '.kosa8')
  return {
    home,
    imagesDirectory: readPath(environment, 'KOSA8_IMAGES_DIR') ?? path.join(home, 'images'),
    socketPath: daemonSocketOf(home),
    remote: readRemote(environment),
    redisUrl: readRedisUrl(environment),
    memoryBudgetBytes: readMemoryBudget(environment),
    caBundle: readFilePath(environment, 'NODE_EXTRA_CA_CERTS') ?? readFilePath(environment, 'SSL_CERT_FILE'),
    hostProxies: {
      http: readProxy(environment, 'HTTP_PROXY'),
      https: readProxy(environment, 'HTTPS_PROXY'),
      except: (readEither(environment, 'NO_PROXY') ?? '').split(','),
    },
    noColor: isSet(environment['NO_COLOR']),
    isCi: isSet(environment['CI']) && environment['CI'] !== 'false',
  }
}

/** Environment for a process of ours on this host that is to use the same home and images as `settings`. */
export function childEnvironment(settings: Settings, environment: NodeJS.ProcessEnv = process.env): NodeJS.ProcessEnv {
  const own = Object.entries(environment).filter(([name]) => !REMOTE_VARIABLES.includes(name))
  const bundles = BUNDLE_VARIABLES.map((name) => [name, readFilePath(environment, name) ?? undefined] as const)
  return { ...Object.fromEntries([...own, ...bundles]), KOSA8_HOME: settings.home, KOSA8_IMAGES_DIR: settings.imagesDirectory }
}

function isSet(value: string | undefined): boolean {
  return value !== undefined && value !== ''
}

function readPath(environment: NodeJS.ProcessEnv, name: string): string | null {
  const value = environment[name]
  if (!isSet(value)) return null
  if (!path.isAbsolute(value as string)) {
    throw new Kosa8Error('CONFIG_INVALID', `${name} must be an absolute path, not ${JSON.stringify(value)}`)
  }
  return path.resolve(value as string)
}

/** A file somebody else reads too, or we read at once: it may be named from the current folder. */
function readFilePath(environment: NodeJS.ProcessEnv, name: string): string | null {
  const value = environment[name]
  return isSet(value) ? path.resolve(value as string) : null
}

function readRemote(environment: NodeJS.ProcessEnv): RemoteDaemon | null {
  const address = environment['KOSA8_URL']
  if (!isSet(address)) return null
  const url = parseDaemonUrl(address as string, 'KOSA8_URL')
  const isGiven = isSet(environment['KOSA8_TOKEN'])
  const text = isGiven ? environment['KOSA8_TOKEN'] as string : readTokenFile(environment)
  return { url, token: parseDaemonToken(text, isGiven ? 'KOSA8_TOKEN' : 'the text in KOSA8_TOKEN_FILE') }
}

function readTokenFile(environment: NodeJS.ProcessEnv): string {
  const file = readFilePath(environment, 'KOSA8_TOKEN_FILE')
  if (file === null) {
    throw new Kosa8Error('CONFIG_INVALID', 'KOSA8_URL is set, and its token is not', { hint: 'set KOSA8_TOKEN or KOSA8_TOKEN_FILE, or unset KOSA8_URL' })
  }
  try {
    return readFileSync(file, 'utf8')
  } catch (cause) {
    throw new Kosa8Error('CONFIG_INVALID', `KOSA8_TOKEN_FILE cannot be read: ${(cause as Error).message}`, { cause })
  }
}

/** As curl has it: the name in lower case goes before, and a scheme may be left out. */
function readProxy(environment: NodeJS.ProcessEnv, name: string): string | null {
  const value = readEither(environment, name)
  if (value === null) return null
  const url = /^[a-z][a-z0-9+.-]*:\/\//i.test(value) ? value : `http://${value}`
  // The address may hold a password: it is not repeated.
  if (!URL.canParse(url)) throw new Kosa8Error('CONFIG_INVALID', `${name} is no URL of a proxy`)
  return url
}

function readEither(environment: NodeJS.ProcessEnv, name: string): string | null {
  const value = environment[name.toLowerCase()] ?? environment[name]
  return isSet(value) ? value as string : null
}

function readMemoryBudget(environment: NodeJS.ProcessEnv): number | null {
  const value = environment['KOSA8_MEMORY_BUDGET']
  if (!isSet(value)) return null
  const memoryMib = parseMemoryMib(value as string)
  if (memoryMib !== null) return memoryMib * 1024 * 1024
  throw new Kosa8Error('CONFIG_INVALID', `KOSA8_MEMORY_BUDGET must be a size such as 3G, not ${JSON.stringify(value)}`)
}

function readRedisUrl(environment: NodeJS.ProcessEnv): string | null {
  const value = environment['REDIS_URL']
  if (!isSet(value)) return null
  if (!/^(rediss?|unix):\/\//.test(value as string)) {
    // The address may hold a password: it is not repeated.
    throw new Kosa8Error('CONFIG_INVALID', 'REDIS_URL must begin with redis://, rediss:// or unix://')
  }
  return value as string
}
