/**
 * Whether a guest may go where it wants to, and by which addresses.
 *
 * Owns: the decision. A name is looked up once, here, and the connection goes to the addresses that were checked, so that
 * a name which answers differently the second time gains nothing.
 */
import { lookup } from 'node:dns/promises'
import { isIP } from 'node:net'
import pLimit from 'p-limit'
import { matchesHost, namesHost, type EgressRule, type HostProxies } from '../model/egress.js'
import { isInternalAddress } from './addresses.js'
import { chooseProxy } from './host-proxy.js'

/** Where to, as the guest said it, in normal form. */
export interface Target {
  host: string
  port: number
  /** What goes there is a tunnel, not plain HTTP. */
  isTunnel: boolean
}

/** The way there. */
export type Route = { via: 'addresses'; addresses: string[] } | { via: 'proxy'; proxy: URL }

/** A way, or why there is none; `blocked` when the rule forbids it, else the name is unknown. */
export type Decision = { route: Route } | { refusal: string; isBlocked: boolean }

/** Tells the addresses of a name; the test's own. */
export type Resolve = (host: string) => Promise<string[]>

/** The system looks names up on a few threads that files need too: slow names of a guest may hold only some of them. */
const lookups = pLimit(2)

const resolveByHost: Resolve = async (host) => (await lookups(() => lookup(host, { all: true }))).map(({ address }) => address)

/** Decides on a target. */
export async function decide(rule: EgressRule, target: Target, proxies: HostProxies, resolve: Resolve = resolveByHost): Promise<Decision> {
  const { host, port } = target
  if (rule.kind !== 'hosts' || !matchesHost(rule.hosts, host, port)) return { refusal: 'it is not on the list', isBlocked: true }
  const isAllowed = (address: string): boolean => !isInternalAddress(address) || namesHost(rule.hosts, address, port)
  const proxy = chooseProxy(proxies, target)
  if (proxy !== null && !/^https?:$/.test(proxy.protocol)) return { refusal: `the host's own proxy is of a kind kosa8 cannot use (${proxy.protocol})`, isBlocked: false }
  if (isIP(host) !== 0) return isAllowed(host) ? { route: routeTo(proxy, [host]) } : internal('it is an address of this host or its surroundings')
  let addresses: string[]
  try {
    addresses = await resolve(host)
  } catch (error) {
    // Behind a proxy the host itself may know no names of the outside.
    if (proxy !== null) return { route: { via: 'proxy', proxy } }
    return { refusal: `its address is not known (${(error as NodeJS.ErrnoException).code ?? 'no answer'})`, isBlocked: false }
  }
  const allowed = addresses.filter(isAllowed)
  if (allowed.length === 0) return internal(`it leads to ${addresses[0] ?? 'nowhere'}, an address of this host or its surroundings`)
  return { route: routeTo(proxy, allowed) }
}

function routeTo(proxy: URL | null, addresses: string[]): Route {
  return proxy === null ? { via: 'addresses', addresses } : { via: 'proxy', proxy }
}

function internal(what: string): Decision {
  return { refusal: `${what}, which must be listed by its number`, isBlocked: true }
}
