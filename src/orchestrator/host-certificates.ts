/**
 * Makes a guest trust what the host trusts.
 *
 * Owns: handing the host's further certificates (of a company's intercepting proxy, say) to a guest that
 * may reach the network; without them every TLS connection from the guest fails there.
 */
import { readFile } from 'node:fs/promises'
import { runInGuest } from '../guest/run-in-guest.js'
import type { GuestSession } from '../guest/session.js'
import type { Sandbox } from '../sandbox/sandbox.js'

/** The guest's own bundle, which git, curl and OpenSSL read. */
const GUEST_CA_BUNDLE = '/etc/ssl/certs/ca-certificates.crt'
/** What was appended is kept beside it, so that it is not appended again when the way out is opened another time. */
const APPEND_SCRIPT = `mkdir -p /etc/ssl/certs /etc/kosa8 && cd /etc/kosa8 && cat > host-certificates.new
if cmp -s host-certificates.new host-certificates; then rm host-certificates.new
else cat host-certificates.new >> ${GUEST_CA_BUNDLE} && mv host-certificates.new host-certificates; fi`
const BUNDLE_BYTES_MAX = 4 * 1024 * 1024

/** What commands in a guest need to use that bundle: Node.js has certificates of its own and must be told. */
export function networkEnvironment(sandbox: Sandbox): Record<string, string> {
  const isOnline = sandbox.machine.handle.shape.network !== 'none' || sandbox.session.hasGateway
  return isOnline ? { NODE_EXTRA_CA_CERTS: GUEST_CA_BUNDLE } : {}
}

/** Appends the host's bundle to the guest's, once; nothing happens without one. */
export async function trustHostCertificates(session: GuestSession, caBundle: string | null): Promise<void> {
  if (caBundle === null) return
  const bundle = await readFile(caBundle)
  if (bundle.length > BUNDLE_BYTES_MAX) return
  await runInGuest(session, { argv: ['/bin/sh', '-c', APPEND_SCRIPT] }, {
    stdin: bundle, timeoutMs: 30_000, outputBytesMax: 65_536,
  })
}
