/**
 * Makes a guest trust what the host trusts.
 *
 * Owns: handing the host's further certificates (of a company's intercepting proxy, say) to a guest that
 * may reach the network; without them every TLS connection from the guest fails there.
 */
import { readFile } from 'node:fs/promises'
import { runInGuest } from '../guest/run-in-guest.js'
import type { GuestSession } from '../guest/session.js'

/** The guest's own bundle, which git, curl and OpenSSL read. */
export const GUEST_CA_BUNDLE = '/etc/ssl/certs/ca-certificates.crt'
const BUNDLE_BYTES_MAX = 4 * 1024 * 1024

/** Appends the host's bundle to the guest's; nothing happens without one. */
export async function trustHostCertificates(session: GuestSession, caBundle: string | null): Promise<void> {
  if (caBundle === null) return
  const bundle = await readFile(caBundle)
  if (bundle.length > BUNDLE_BYTES_MAX) return
  await runInGuest(session, { argv: ['/bin/sh', '-c', `mkdir -p /etc/ssl/certs && cat >> ${GUEST_CA_BUNDLE}`] }, {
    stdin: bundle, timeoutMs: 30_000, outputBytesMax: 65_536,
  })
}
