/**
 * The daemon on a TCP address: off unless somebody asks for it, and only with a token.
 *
 * Owns: which addresses are allowed, TLS, and the token's file. A listener belongs to the daemon that was told to open
 * it, and ends with it.
 */
import { randomBytes } from 'node:crypto'
import { lookup } from 'node:dns/promises'
import { readFile, stat } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { Kosa8Error } from '../../errors/kosa8-error.js'
import { isLoopbackName } from '../../model/remote-daemon.js'
import type { ListenRequest } from '../../protocol/status.js'
import { writeFileOnce } from '../../util/atomic-write.js'
import type { Services } from '../services.js'
import { buildApp, type DaemonServer } from './app.js'
import { TcpGate } from './tcp-gate.js'

const TOKEN_BYTES = 32

/** An open listener. */
export interface TcpListener extends DaemonServer {
  /** With the port it really has. */
  url: string
}

/**
 * Listens on an address.
 * @throws CONFIG_INVALID for an address that is not this host's alone without TLS, or that cannot be listened on.
 */
export async function openTcpListener(services: Services, { host, port, tls }: ListenRequest, tokenFile: string): Promise<TcpListener> {
  const address = await resolveHost(host)
  if (tls === null && !isLoopbackName(address)) {
    throw new Kosa8Error('CONFIG_INVALID', `${host} can be reached from other hosts, and a token in clear text is none`, {
      hint: 'give --tls-cert and --tls-key, or listen on 127.0.0.1 and reach it through ssh -L',
    })
  }
  const credentials = tls === null ? null : { cert: await readPem(tls.certFile), key: await readPem(tls.keyFile) }
  const gate = new TcpGate(await readToken(tokenFile), credentials !== null)
  const { app, server } = await buildApp(services, { gate, tls: credentials }).catch((cause: unknown) => {
    throw new Kosa8Error('CONFIG_INVALID', `certificate and key cannot be used: ${(cause as Error).message}`, { cause })
  })
  await new Promise<void>((resolve, reject) => {
    app.server.once('error', reject)
    app.server.listen(port, address, resolve)
  }).catch(async (cause: Error) => {
    await server.close()
    throw new Kosa8Error('CONFIG_INVALID', `cannot listen on ${host}:${port}: ${cause.message}`, { hint: 'choose another port', cause })
  })
  const { port: real } = app.server.address() as AddressInfo
  return { url: `${credentials === null ? 'http' : 'https'}://${host.includes(':') ? `[${host}]` : host}:${real}`, close: () => server.close() }
}

async function resolveHost(host: string): Promise<string> {
  return lookup(host).then(({ address }) => address, (cause: unknown) => {
    throw new Kosa8Error('CONFIG_INVALID', `there is no address for ${host}`, { cause })
  })
}

async function readPem(file: string): Promise<Buffer> {
  return readFile(file).catch((cause: Error) => {
    throw new Kosa8Error('CONFIG_INVALID', `${file} cannot be read: ${cause.message}`, { cause })
  })
}

/** The token of a home, made where there is none. @throws CONFIG_INVALID when others can read it. */
async function readToken(file: string): Promise<string> {
  await writeFileOnce(file, `${randomBytes(TOKEN_BYTES).toString('base64url')}\n`)
  const token = (await readFile(file, 'utf8')).trim()
  if (((await stat(file)).mode & 0o077) === 0 && Buffer.from(token, 'base64url').length >= TOKEN_BYTES) return token
  throw new Kosa8Error('CONFIG_INVALID', `the token in ${file} is too short, or others can read it`, { hint: `remove it, and a new one is made: rm ${file}` })
}
