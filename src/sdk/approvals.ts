/**
 * Approvals as the person who gives them sees them: what waits, and the signature for one of it.
 *
 * Owns: signing. The private key never leaves this process; the daemon gets the signature. Callers: `kosa8 approve`
 * and programs of the person; what asks for approvals needs none of this.
 */
import { APPROVAL_MS_DEFAULT, APPROVAL_MS_MAX, approvalText } from '../model/approval.js'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { ApprovalDescription } from '../protocol/approvals.js'
import { fingerprintOf, signText } from '../util/ed25519.js'
import type { DaemonConnection } from './connection.js'

/** The key an approval is signed with, and how long it holds. */
export interface ApproveOptions {
  /** PKCS #8, PEM. */
  privateKey: string
  /** For a key that is encrypted. */
  passphrase?: string
  /** Milliseconds from now in which it may be used; 10 minutes by default, an hour at most. */
  forMs?: number
}

/** An approval that a guarded call is made with. */
export interface WithApproval {
  /** Id of a request that a person has approved; needed where the sandbox was made with `approvals`. */
  approval?: string
}

/** Requests for approvals. Unknown ids: APPROVAL_UNKNOWN. */
export class ApprovalsClient {
  constructor(private readonly connection: DaemonConnection) {}

  /** Those that wait, and those approved and not used; oldest first. */
  async list(): Promise<ApprovalDescription[]> {
    return this.connection.call('listApprovals', {})
  }

  async get(id: string): Promise<ApprovalDescription> {
    return this.connection.call('getApproval', { params: { id } })
  }

  /**
   * Signs a request. What is signed is what is given, so that it is what was looked at.
   * @throws APPROVAL_WRONG_KEY, APPROVAL_USED, APPROVAL_DENIED, APPROVAL_TAMPERED when the request is not the daemon's any more.
   */
  async approve(request: ApprovalDescription, { privateKey, passphrase, forMs = APPROVAL_MS_DEFAULT }: ApproveOptions): Promise<ApprovalDescription> {
    if (!(forMs > 0 && forMs <= APPROVAL_MS_MAX)) throw new Kosa8Error('USAGE', `an approval is good for an hour at most, and not for ${forMs} ms`)
    const until = new Date(Date.now() + forMs).toISOString()
    const { signature, publicKey } = signText(approvalText(request, until), privateKey, passphrase ?? null)
    return this.connection.call('approve', { params: { id: request.id }, body: { until, signature, key: fingerprintOf(publicKey) } })
  }

  /** Refuses a request, or takes an approval back that was not used. Needs no key. */
  async deny(id: string): Promise<ApprovalDescription> {
    return this.connection.call('deny', { params: { id } })
  }
}
