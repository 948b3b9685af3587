/**
 * The ways out of the sandboxes of a host: one proxy per sandbox whose rule is a list of hosts.
 *
 * Owns: which sandbox has which proxy, and that what was blocked is remembered across rewinds and changes of the rule.
 */
import { EgressProxy } from '../egress/egress-proxy.js'
import { parseEgress, type BlockedAttempt, type HostProxies } from '../model/egress.js'
import type { SandboxName } from '../model/ids.js'

/** Gateways by name of sandbox. */
export class Gateways {
  private readonly all = new Map<SandboxName, EgressProxy>()

  /** @param onBlocked told of each target's first attempt, a bounded number of times per sandbox */
  constructor(private readonly proxies: HostProxies, private readonly onBlocked: (name: SandboxName, attempt: BlockedAttempt) => void) {}

  /** The gateway of a sandbox as its rule wants it; null when the rule wants none. */
  of(name: SandboxName, egress: string): EgressProxy | null {
    const rule = parseEgress(egress)
    const known = this.all.get(name)
    if (known !== undefined) known.rule = rule
    if (rule.kind !== 'hosts') {
      known?.close()
      return null
    }
    const gateway = known ?? new EgressProxy({
      rule, proxies: this.proxies,
      advise: (entry, list) => `To allow it, on the host: kosa8 egress ${name} '${list},${entry}'`,
      onBlocked: (attempt) => this.onBlocked(name, attempt),
    })
    this.all.set(name, gateway)
    return gateway
  }

  /** What a sandbox tried to reach and was not to, the latest first. */
  blockedOf(name: SandboxName): BlockedAttempt[] {
    return this.all.get(name)?.blockedAttempts() ?? []
  }

  /** The sandbox is gone. */
  forget(name: SandboxName): void {
    this.all.get(name)?.close()
    this.all.delete(name)
  }
}
