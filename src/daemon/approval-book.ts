/**
 * The book of approvals: what waits for a person, what they signed, and what was done with it.
 *
 * Owns: the rule that a guarded act on a sandbox with approvals happens at most once per signature, and only the one
 * that was signed. The use is on disk before the act begins; a daemon that dies in between leaves `begun` there, and
 * that counts as used. An act that failed under our eyes has not happened: its approval may be used again.
 * Does not own: keys (it knows public ones only), which calls are guarded (`protocol/guarded-calls.ts`).
 */
import { randomBytes } from 'node:crypto'
import { Kosa8Error } from '../errors/kosa8-error.js'
import {
  APPROVAL_MS_MAX, REQUEST_MS_MAX, approvalRequestSchema, approvalText, commandOf, nameAct, type ApprovalRequest, type ApprovalState,
} from '../model/approval.js'
import type { SandboxName } from '../model/ids.js'
import type { ApprovalDescription, ApproveRequest } from '../protocol/approvals.js'
import type { GuardedAct } from '../protocol/guarded-calls.js'
import type { ApprovalRecord } from '../store/approval-store.js'
import type { Clock } from '../util/clock.js'
import { fingerprintOf, verifyText } from '../util/ed25519.js'
import { Turns } from '../util/turns.js'
import type { ApprovalService } from './services.js'

/** Requests of one sandbox that may wait at once, and all that are kept: more is a client that asks in a loop. */
const WAITING_MAX = 20
const KEPT_MAX = 500

/** What the book must know of a sandbox. */
export interface ApprovedSandbox {
  createdAt: string
  /** Public key, PEM; null: it needs no approvals. */
  approvals: string | null
}

/** What the book must know of a checkpoint. */
export interface ApprovedCheckpoint { id: string; createdAt: string; label: string | null }

/** What the book works with. */
export interface ApprovalBookParts {
  store: {
    read(id: string): Promise<ApprovalRecord | null>
    write(id: string, record: ApprovalRecord): Promise<void>
    remove(id: string): Promise<void>
    list(): Promise<ApprovalRecord[]>
  }
  clock: Clock
  /** @throws SANDBOX_UNKNOWN */
  sandbox(name: string): Promise<ApprovedSandbox>
  /** Oldest first. */
  checkpoints(sandbox: string): Promise<ApprovedCheckpoint[]>
  onError: (message: string, error: unknown) => void
}

/** The approvals of this host. One per daemon. */
export class ApprovalBook implements ApprovalService {
  /** The book is read and written by one call at a time: no approval is used twice. */
  private readonly turns = new Turns()
  /** Ids whose act is being done. */
  private readonly underway = new Set<string>()

  constructor(private readonly parts: ApprovalBookParts) {}

  async guard<T>(act: GuardedAct, approval: string | null, perform: () => Promise<T>): Promise<T> {
    const sandbox = await this.parts.sandbox(act.sandbox)
    if (sandbox.approvals === null) return perform()
    if (approval === null) throw await this.inTurn(async () => requiredFor(await this.ask(act, sandbox)))
    const isPartOfRewind = await this.inTurn(() => this.begin(act, sandbox, sandbox.approvals as string, approval))
    if (isPartOfRewind) return perform()
    try {
      const result = await perform()
      await this.inTurn(() => this.finish(approval, 'done'))
      return result
    } catch (error) {
      await this.inTurn(() => this.finish(approval, 'failed'))
      throw error
    }
  }

  async list(): Promise<ApprovalDescription[]> {
    const records = await this.inTurn(() => this.tidy())
    const living = await Promise.all(records.map(async (record) => await this.isForLiving(record) ? [record] : []))
    const described = await Promise.all(living.flat().map((record) => this.describe(record)))
    return described.filter(({ state }) => state === 'waiting' || state === 'approved').sort((a, b) => a.askedAt.localeCompare(b.askedAt))
  }

  async get(id: string): Promise<ApprovalDescription> {
    return this.describe(await this.read(id))
  }

  async approve(id: string, { until, signature, key }: ApproveRequest): Promise<ApprovalDescription> {
    return this.inTurn(async () => {
      const record = await this.read(id)
      this.refuseUsed(record)
      refuseDenied(record)
      const publicKey = await this.keyOf(record)
      const expected = fingerprintOf(publicKey)
      if (key !== expected) {
        throw new Kosa8Error('APPROVAL_WRONG_KEY', `request ${id} was signed with the key ${key}, sandbox ${record.sandbox} was made with ${expected}`, {
          hint: 'sign with the private key that belongs to the file given to `kosa8 create --approvals`', details: { key, expected },
        })
      }
      if (!verifyText(approvalText(record, until), signature, publicKey)) throw tampered(record)
      this.checkUntil(record, until)
      const approved: ApprovalRecord = { ...record, decision: { kind: 'approved', at: this.now(), until, signature } }
      await this.parts.store.write(id, approved)
      return this.describe(approved)
    })
  }

  async deny(id: string): Promise<ApprovalDescription> {
    return this.inTurn(async () => {
      const record = await this.read(id)
      this.refuseUsed(record)
      const denied: ApprovalRecord = { ...record, decision: { kind: 'denied', at: this.now() } }
      await this.parts.store.write(id, denied)
      return this.describe(denied)
    })
  }

  /** The request for an act: the one that is there already, or a new one. */
  private async ask(act: GuardedAct, sandbox: ApprovedSandbox): Promise<ApprovalRecord> {
    const facts = await this.factsOf(act)
    const kept = await this.tidy()
    const own = kept.filter((record) => record.sandbox === act.sandbox && this.stateOf(record) !== 'denied' && this.stateOf(record) !== 'used')
    const same = own.find((record) => isOf(record, act) && record.targetCreatedAt === facts.targetCreatedAt)
    if (same !== undefined && !this.isExpired(same)) return same
    if (own.length >= WAITING_MAX || kept.length >= KEPT_MAX) {
      throw new Kosa8Error('LIMIT_EXCEEDED', `${own.length} requests for approvals of ${act.sandbox} wait already`, {
        hint: 'look at them with `kosa8 approve`, and refuse those nobody needs: kosa8 approve ID --deny',
      })
    }
    const request: ApprovalRequest = {
      id: randomBytes(8).toString('hex'), ...act, sandbox: act.sandbox as SandboxName, sandboxCreatedAt: sandbox.createdAt, askedAt: this.now(), ...facts,
    }
    if (!approvalRequestSchema.safeParse(request).success) throw new Kosa8Error('USAGE', `what is asked for cannot be written on one line: ${act.target}`)
    const record: ApprovalRecord = { ...request, decision: null, use: null }
    await this.parts.store.write(record.id, record)
    return record
  }

  /** What a person should know before they decide. @throws CHECKPOINT_UNKNOWN */
  private async factsOf({ sandbox, action, target }: GuardedAct): Promise<Pick<ApprovalRequest, 'targetCreatedAt' | 'label' | 'lost'>> {
    const checkpoints = await this.parts.checkpoints(sandbox)
    const ids = (of: ApprovedCheckpoint[]): string[] => of.map(({ id }) => id)
    if (action === 'delete') return { targetCreatedAt: null, label: null, lost: ids(checkpoints) }
    if (action === 'egress') return { targetCreatedAt: null, label: null, lost: [] }
    const found = checkpoints.find(({ id }) => id === target)
    if (found === undefined) {
      throw new Kosa8Error('CHECKPOINT_UNKNOWN', `sandbox ${sandbox} has no checkpoint ${target}`, { hint: `list them with: kosa8 checkpoint ls ${sandbox}` })
    }
    const later = action === 'rewind' ? checkpoints.filter(({ createdAt }) => createdAt > found.createdAt) : []
    return { targetCreatedAt: found.createdAt, label: found.label, lost: ids(later) }
  }

  /** Notes that an approval is used from now on. @returns true where the act belongs to a rewind that was approved and done */
  private async begin(act: GuardedAct, sandbox: ApprovedSandbox, publicKey: string, id: string): Promise<boolean> {
    const record = await this.read(id)
    if (record.sandbox !== act.sandbox || record.sandboxCreatedAt !== sandbox.createdAt) throw mismatch(record, act)
    if (await this.isPartOfRewind(record, act)) return true
    if (!isOf(record, act) || (await this.factsOf(act)).targetCreatedAt !== record.targetCreatedAt) throw mismatch(record, act)
    this.refuseUsed(record)
    refuseDenied(record)
    if (record.decision === null) throw requiredFor(record)
    const { until, signature } = record.decision as { until: string; signature: string }
    if (!verifyText(approvalText(record, until), signature, publicKey)) throw tampered(record)
    this.checkUntil(record, until)
    await this.parts.store.write(id, { ...record, use: { startedAt: this.now(), state: 'begun' } })
    this.underway.add(id)
    return false
  }

  /** A rewind drops the checkpoints taken between its target and itself. */
  private async isPartOfRewind(record: ApprovalRecord, act: GuardedAct): Promise<boolean> {
    if (record.action !== 'rewind' || act.action !== 'delete-checkpoint' || record.use?.state !== 'done') return false
    const dropped = (await this.parts.checkpoints(act.sandbox)).find(({ id }) => id === act.target)
    return dropped !== undefined && dropped.createdAt > (record.targetCreatedAt as string) && dropped.createdAt < record.use.startedAt
  }

  private async finish(id: string, state: 'done' | 'failed'): Promise<void> {
    try {
      const record = await this.read(id)
      await this.parts.store.write(id, { ...record, use: { startedAt: record.use?.startedAt ?? this.now(), state } })
    } catch (error) {
      // It stays `begun`, which nobody can use again.
      this.parts.onError(`what became of approval ${id} could not be noted`, error)
    } finally {
      this.underway.delete(id)
    }
  }

  private refuseUsed({ id, use, ...request }: ApprovalRecord): void {
    if (use === null || use.state === 'failed') return
    const isLost = use.state === 'begun' && !this.underway.has(id)
    const end = isLost ? ', and the daemon ended before it was done: how far it came is not known' : ''
    throw new Kosa8Error('APPROVAL_USED', `approval ${id} (${nameAct(request)}) was used at ${use.startedAt}${end}`, {
      hint: isLost ? `look at the sandbox with \`kosa8 ls\`; to do it again, ask anew: ${commandOf(request)}`
        : `one approval is for one time; to do it again, ask anew: ${commandOf(request)}`,
      details: { approval: id, usedAt: use.startedAt },
    })
  }

  private checkUntil({ id, ...request }: ApprovalRecord, until: string): void {
    const leftMs = Date.parse(until) - this.parts.clock.now()
    if (leftMs <= 0) {
      throw new Kosa8Error('APPROVAL_EXPIRED', `approval ${id} (${nameAct(request)}) was good until ${until}; it is ${this.now()} now`, {
        hint: `have it approved again: kosa8 approve ${id}`, details: { approval: id, until },
      })
    }
    if (leftMs <= APPROVAL_MS_MAX) return
    throw new Kosa8Error('USAGE', `an approval is good for an hour at most, not until ${until}`, { hint: 'check the clock of the machine it was signed on' })
  }

  private isExpired({ decision }: ApprovalRecord): boolean {
    return decision?.kind === 'approved' && Date.parse(decision.until) <= this.parts.clock.now()
  }

  /** Removes what is too old to matter, what a vanished sandbox asked for, and the oldest that are decided if there are too many. */
  private async tidy(): Promise<ApprovalRecord[]> {
    const kept: ApprovalRecord[] = []
    for (const record of await this.parts.store.list()) {
      const ageMs = this.parts.clock.now() - Date.parse(record.decision?.at ?? record.askedAt)
      if (ageMs > REQUEST_MS_MAX || (this.stateOf(record) === 'waiting' && !await this.isForLiving(record))) await this.parts.store.remove(record.id)
      else kept.push(record)
    }
    kept.sort((a, b) => a.askedAt.localeCompare(b.askedAt))
    const isOver = (record: ApprovalRecord): boolean => ['used', 'denied'].includes(this.stateOf(record)) && !this.underway.has(record.id)
    const surplus = kept.filter(isOver).slice(0, Math.max(0, kept.length - KEPT_MAX + 1))
    for (const { id } of surplus) await this.parts.store.remove(id)
    return kept.filter((record) => !surplus.includes(record))
  }

  private async isForLiving(record: ApprovalRecord): Promise<boolean> {
    try {
      const { createdAt } = await this.parts.sandbox(record.sandbox)
      return createdAt === record.sandboxCreatedAt && (await this.factsOf(record)).targetCreatedAt === record.targetCreatedAt
    } catch {
      return false
    }
  }

  /** @throws SANDBOX_UNKNOWN, APPROVAL_MISMATCH for a sandbox that is not the one of the request any more. */
  private async keyOf(record: ApprovalRecord): Promise<string> {
    const { approvals, createdAt } = await this.parts.sandbox(record.sandbox)
    if (approvals !== null && createdAt === record.sandboxCreatedAt) return approvals
    throw mismatch(record, record)
  }

  private async read(id: string): Promise<ApprovalRecord> {
    const record = await this.parts.store.read(id)
    if (record !== null) return record
    throw new Kosa8Error('APPROVAL_UNKNOWN', `there is no request for an approval ${id}`, {
      hint: 'see what waits with `kosa8 approve`; requests are kept for a day. Without an approval the call itself makes one',
    })
  }

  private stateOf({ decision, use }: ApprovalRecord): ApprovalState {
    if (use !== null && use.state !== 'failed') return 'used'
    return decision?.kind ?? 'waiting'
  }

  private async describe(record: ApprovalRecord): Promise<ApprovalDescription> {
    const { decision, use, ...request } = record
    const key = await this.keyOf(record).then(fingerprintOf, () => '')
    const lost = await this.factsOf(record).then((facts) => facts.lost, () => record.lost)
    return { ...request, lost, key, state: use?.state !== 'done' && this.isExpired(record) ? 'waiting' : this.stateOf(record), until: decision?.kind === 'approved' ? decision.until : null }
  }

  private now(): string {
    return new Date(this.parts.clock.now()).toISOString()
  }

  private inTurn<T>(work: () => Promise<T>): Promise<T> {
    return this.turns.take('book', work)
  }
}

function isOf({ action, target }: ApprovalRecord, act: GuardedAct): boolean {
  return action === act.action && target === act.target
}

function requiredFor({ id, decision, ...request }: ApprovalRecord): Kosa8Error {
  const repeat = `${commandOf(request)} --approval ${id}`
  const details = { approval: id, sandbox: request.sandbox, action: request.action, target: request.target }
  if (decision?.kind === 'approved') {
    return new Kosa8Error('APPROVAL_REQUIRED', `to ${nameAct(request)} needs an approval, which is there: ${id}`, { hint: `use it: ${repeat}`, details })
  }
  return new Kosa8Error('APPROVAL_REQUIRED', `to ${nameAct(request)} needs an approval by a person; request ${id} waits for it`, {
    hint: `whoever holds the key of ${request.sandbox} runs: kosa8 approve ${id}; after that: ${repeat}`, details,
  })
}

function refuseDenied({ id, decision, ...request }: ApprovalRecord): void {
  if (decision?.kind !== 'denied') return
  throw new Kosa8Error('APPROVAL_DENIED', `a person has refused request ${id} (${nameAct(request)}) at ${decision.at}`, {
    hint: 'ask them why before you ask again', details: { approval: id },
  })
}

function mismatch({ id, ...request }: ApprovalRecord, act: GuardedAct): Kosa8Error {
  const isSame = isOf({ id, ...request }, act) && request.sandbox === act.sandbox
  const message = isSame ? `approval ${id} is for an earlier ${request.sandbox}, or for an earlier checkpoint of that name`
    : `approval ${id} is to ${nameAct(request)}, not to ${nameAct({ ...act, sandbox: act.sandbox as SandboxName, label: null })}`
  return new Kosa8Error('APPROVAL_MISMATCH', message, {
    hint: isSame ? 'repeat the call without an approval to ask for one' : `it allows: ${commandOf(request)} --approval ${id}`, details: { approval: id },
  })
}

function tampered({ id, ...request }: ApprovalRecord): Kosa8Error {
  return new Kosa8Error('APPROVAL_TAMPERED', `the signature of approval ${id} is not of this request (${nameAct(request)}): one of them was changed`, {
    hint: `have it approved again: kosa8 approve ${id}`, details: { approval: id },
  })
}
