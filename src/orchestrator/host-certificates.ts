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
const BUNDLE_BYTES_MAX = 4 * 1024 * 1024

/** What commands in a guest need to use that bundle: Node.js has certificates of its own and must be told. */
export function networkEnvironment(sandbox: Sandbox): Record<string, string> {
  return sandbox.machine.handle.shape.network === 'none' ? {} : { NODE_EXTRA_CA_CERTS: GUEST_CA_BUNDLE }
}

/** Appends the host's bundle to the guest's; nothing happens without one. */
export async function trustHostCertificates(session: GuestSession, caBundle: string | null): Promise<void> {
  if (caBundle === null) return
  const bundle = await readFile(caBundle)
  if (bundle.length > BUNDLE_BYTES_MAX) return
  await runInGuest(session, { argv: ['/bin/sh', '-c', `mkdir -p /etc/ssl/certs && cat >> ${GUEST_CA_BUNDLE}`] }, {
    stdin: bundle, timeoutMs: 30_000, outputBytesMax: 65_536,
  })
}
