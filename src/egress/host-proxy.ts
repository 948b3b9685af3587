/**
 * The proxy that the host itself must go through, where it has one.
 *
 * Owns: which target goes through it, as HTTP_PROXY, HTTPS_PROXY and NO_PROXY are commonly read.
 */
import { BlockList, isIP, isIPv6 } from 'node:net'
import type { HostProxies } from '../model/egress.js'
import type { Target } from './destination.js'

/** The proxy for a target; null: directly. */
export function chooseProxy(proxies: HostProxies, { host, port, isTunnel }: Target): URL | null {
  const url = isTunnel ? proxies.https : proxies.http
  return url === null || proxies.except.some((entry) => isExcepted(entry.trim().toLowerCase(), host, port)) ? null : new URL(url)
}

function isExcepted(entry: string, host: string, port: number): boolean {
  if (entry === '*') return true
  if (entry.includes('/')) return isInNetwork(entry, host)
  const match = /^\[?(.*?)\]?(?::(\d+))?$/.exec(/:.*:/.test(entry) && !entry.startsWith('[') ? `[${entry}]` : entry)
  const name = match?.[1]?.replace(/^\*?\./, '') ?? ''
  if (name === '' || (match?.[2] !== undefined && Number(match[2]) !== port)) return false
  return host === name || host.endsWith(`.${name}`)
}

/** An address by number in `address/prefix`; names are not looked up for it. */
function isInNetwork(entry: string, host: string): boolean {
  const match = /^\[?([0-9a-f.:]+)\]?\/(\d{1,3})$/.exec(entry)
  const [network, prefix] = [match?.[1] ?? '', Number(match?.[2])]
  if (isIP(host) === 0 || isIP(network) !== isIP(host) || prefix > (isIPv6(host) ? 128 : 32)) return false
  const list = new BlockList()
  const family = isIPv6(host) ? 'ipv6' : 'ipv4'
  list.addSubnet(network, prefix, family)
  return list.check(host, family)
}

/** What a proxy wants to know of whoever uses it; empty without user and password in its URL. */
export function proxyHeaders({ username, password }: URL): Record<string, string> {
  if (username === '' && password === '') return {}
  const secret = Buffer.from(`${decodeURIComponent(username)}:${decodeURIComponent(password)}`).toString('base64')
  return { 'proxy-authorization': `Basic ${secret}` }
}
