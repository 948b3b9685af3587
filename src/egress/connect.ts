/**
 * Connections of the host on behalf of a guest: to addresses that were checked, or through the host's own proxy.
 *
 * Owns: their time limits. Errors are for people: the guest's program gets them as an answer.
 */
import { request as httpRequest, type ClientRequest, type IncomingMessage, type OutgoingHttpHeaders } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { connect, isIP, isIPv6, type LookupFunction, type Socket } from 'node:net'
import { formatAuthority } from '../model/egress.js'
import type { Route, Target } from './destination.js'
import { proxyHeaders } from './host-proxy.js'

/** For a connection, its proxy's answer included. */
const CONNECT_TIMEOUT_MS = 30_000
/** The next address of a host is tried after this long without an answer from the one before. */
const NEXT_ADDRESS_MS = 2_000
/** A connection on which nothing moves in either direction for this long is ended. */
export const IDLE_TIMEOUT_MS = 60 * 60_000

/** What went wrong on the way, in words: all addresses that failed together have no message of their own, and with a proxy it is the one that failed. */
export function describeFailure(route: Route, error: NodeJS.ErrnoException): string {
  return `${route.via === 'proxy' ? 'the host\'s proxy cannot be used: ' : ''}${error.message || (error.code ?? 'no connection')}`
}

/** Opens a tunnel to a target. */
export async function openTunnel(target: Target, route: Route): Promise<{ socket: Socket; head: Buffer }> {
  return route.via === 'proxy' ? tunnelThrough(route.proxy, target) : { socket: await connectTo(route.addresses, target), head: Buffer.alloc(0) }
}

/** A plain HTTP request to a target; `path` is below it. The caller sends the body and handles `response` and `error`. */
export function openRequest(
  target: Target, route: Route, wanted: { method: string; path: string; headers: OutgoingHttpHeaders },
): ClientRequest {
  const common = { method: wanted.method, agent: false as const, setHost: false, timeout: IDLE_TIMEOUT_MS, autoSelectFamilyAttemptTimeout: NEXT_ADDRESS_MS }
  if (route.via === 'addresses') {
    return httpRequest({ ...common, host: target.host, port: target.port, path: wanted.path, headers: wanted.headers, lookup: lookupOf(route.addresses) })
  }
  const { proxy } = route
  const path = `http://${formatAuthority(target.host, target.port)}${wanted.path}`
  const send = proxy.protocol === 'https:' ? httpsRequest : httpRequest
  return send({ ...common, ...placeOf(proxy), path, headers: { ...wanted.headers, ...proxyHeaders(proxy) } })
}

async function connectTo(addresses: string[], { host, port }: Target): Promise<Socket> {
  const socket = connect({ host, port, lookup: lookupOf(addresses), allowHalfOpen: true, autoSelectFamilyAttemptTimeout: NEXT_ADDRESS_MS })
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => socket.destroy(new Error('no answer in time')), CONNECT_TIMEOUT_MS)
    socket.once('connect', () => {
      clearTimeout(timer)
      resolve(socket)
    })
    socket.once('error', (error: NodeJS.ErrnoException) => {
      clearTimeout(timer)
      reject(error)
    })
  })
}

/** Answers with the addresses that were checked, whatever the name would say now. */
function lookupOf(addresses: string[]): LookupFunction {
  const all = addresses.map((address) => ({ address, family: isIPv6(address) ? 6 : 4 }))
  return (_host, options, callback) => {
    if (options.all === true) callback(null, all)
    else callback(null, all[0]?.address ?? '', all[0]?.family)
  }
}

async function tunnelThrough(proxy: URL, target: Target): Promise<{ socket: Socket; head: Buffer }> {
  const authority = formatAuthority(target.host, target.port)
  const send = proxy.protocol === 'https:' ? httpsRequest : httpRequest
  const asking = send({
    ...placeOf(proxy), method: 'CONNECT', path: authority, agent: false, setHost: false,
    headers: { host: authority, ...proxyHeaders(proxy) }, timeout: CONNECT_TIMEOUT_MS,
  })
  return new Promise((resolve, reject) => {
    asking.once('timeout', () => asking.destroy(new Error('no answer in time')))
    asking.once('error', reject)
    asking.once('connect', (answer: IncomingMessage, socket: Socket, head: Buffer) => {
      if (answer.statusCode === 200) {
        resolve({ socket, head })
        return
      }
      socket.destroy()
      reject(new Error(`it refuses with status ${answer.statusCode}`))
    })
    asking.once('response', (answer) => {
      answer.destroy()
      reject(new Error(`it refuses with status ${answer.statusCode}`))
    })
    asking.end()
  })
}

/** A proxy's certificate is for its own name: without `servername` Node.js would expect the one in the Host header, the target's. */
function placeOf(proxy: URL): { host: string; port: number; servername: string } {
  const host = proxy.hostname.replace(/^\[|\]$/g, '')
  return { host, port: Number(proxy.port) || (proxy.protocol === 'https:' ? 443 : 80), servername: isIP(host) === 0 ? host : '' }
}
