/**
 * Addresses that mean this host or its surroundings rather than somebody on the network.
 *
 * Owns: the list. A guest reaches them only where its rule names the very address, so that no name somebody else controls
 * leads to services of the host.
 */
import { BlockList, isIPv6 } from 'node:net'
import { networkInterfaces } from 'node:os'

/** Unspecified, loopback, link-local (cloud metadata among them), multicast, reserved; two clouds' metadata elsewhere. */
const IPV4: [network: string, prefix: number][] = [
  ['0.0.0.0', 8], ['127.0.0.0', 8], ['169.254.0.0', 16], ['224.0.0.0', 4], ['240.0.0.0', 4],
  ['100.100.100.200', 32], ['168.63.129.16', 32],
]
/** The same, IPv4 addresses in IPv6 clothes among them. */
const IPV6: [network: string, prefix: number][] = [
  ['::', 96], ['fe80::', 10], ['fec0::', 10], ['ff00::', 8], ['fd00:ec2::254', 128], ['fd20:ce::254', 128],
]

/** Prefixes that carry an IPv4 address at their end: translation to IPv4 (NAT64). */
const TRANSLATED = '64:ff9b::'

const internal = new BlockList()
for (const [network, prefix] of IPV4) {
  internal.addSubnet(network, prefix, 'ipv4')
  internal.addSubnet(`${TRANSLATED}${network}`, 96 + prefix, 'ipv6')
}
for (const [network, prefix] of IPV6) internal.addSubnet(network, prefix, 'ipv6')

/** Whether an address is this host's own (any of its interfaces) or one of those above. */
export function isInternalAddress(address: string): boolean {
  const family = isIPv6(address) ? 'ipv6' : 'ipv4'
  if (internal.check(address, family)) return true
  const own = new BlockList()
  for (const each of Object.values(networkInterfaces()).flat()) if (each !== undefined) own.addAddress(each.address, each.family === 'IPv6' ? 'ipv6' : 'ipv4')
  return own.check(address, family)
}
