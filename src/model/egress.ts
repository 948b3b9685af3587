/**
 * What a machine may reach: nothing (`deny`), everything (`allow`, with a network card), or a list of hosts.
 *
 * Owns: the rule's text form, its normal form, and whether a host matches. A rule travels and is stored as text in normal
 * form. Does not own: what addresses a name has and how it is reached (`egress`).
 */
import { z } from 'zod'
import { Kosa8Error } from '../errors/kosa8-error.js'

/** One entry of a list. */
export interface HostPattern {
  /** A name, `*.` and a name, `*`, or an address without brackets. */
  host: string
  /** Null: {@link DEFAULT_PORTS}. */
  port: number | null
}

/** A rule, understood. */
export type EgressRule = { kind: 'deny' } | { kind: 'allow' } | { kind: 'hosts'; hosts: HostPattern[] }

/** Ports of an entry that names none. */
export const DEFAULT_PORTS: readonly number[] = [80, 443]

const HOSTS_MAX = 256
/** As much as an approval can be bound to. */
const TEXT_LENGTH_MAX = 4096
const HOST_LENGTH_MAX = 253
/** Targets that one line names. */
const SHOWN_MAX = 5

/** Understands a rule. @throws Kosa8Error CONFIG_INVALID naming the entry that is wrong. */
export function parseEgress(text: string): EgressRule {
  const entries = text.split(',').map((entry) => entry.trim())
  if (entries.length === 1 && (entries[0] === 'deny' || entries[0] === 'allow')) return { kind: entries[0] }
  if (text.length > TEXT_LENGTH_MAX || entries.length > HOSTS_MAX) throw invalid(`a list of more than ${HOSTS_MAX} hosts or ${TEXT_LENGTH_MAX} characters`)
  return { kind: 'hosts', hosts: entries.map(parsePattern) }
}

/** The rule as text, in normal form: what is stored and compared. */
export function formatEgress(rule: EgressRule): string {
  if (rule.kind !== 'hosts') return rule.kind
  return [...new Set(rule.hosts.map(({ host, port }) => port === null ? host : formatAuthority(host, port)))].join(',')
}

/** `host:port`, an IPv6 address in brackets. */
export function formatAuthority(host: string, port: number): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`
}

/** Whether the list has a host, which is in normal form. `*` and `*.name` stand for names and addresses alike. */
export function matchesHost(hosts: readonly HostPattern[], host: string, port: number): boolean {
  return hosts.some((pattern) => hasPort(pattern, port)
    && (pattern.host === '*' || pattern.host === host || (pattern.host.startsWith('*.') && host.endsWith(pattern.host.slice(1)))))
}

/** Whether the list names this very host or address. */
export function namesHost(hosts: readonly HostPattern[], host: string, port: number): boolean {
  return hosts.some((pattern) => pattern.host === host && hasPort(pattern, port))
}

/**
 * A host as programs write it in its one normal form: lower case, international names in ASCII, no dot at the end, addresses
 * in their shortest spelling and without brackets, an IPv4 address in IPv6 clothes as IPv4. Null when it is none.
 */
export function normaliseHost(text: string): string | null {
  const bare = text.startsWith('[') || !/:.*:/.test(text) ? text : `[${text}]`
  if (!/^(\[[0-9a-f:.]+\]|[^\s:/?#@\\%[\]<>^|*]+)$/i.test(bare)) return null
  if (!URL.canParse(`http://${bare}/`)) return null
  const host = new URL(`http://${bare}/`).hostname.replace(/^\[|\]$/g, '').replace(/\.$/, '')
  // A guest chooses what is shown and suggested as part of a command: nothing that means something to a shell.
  if (!/^([a-z0-9._-]+|[0-9a-f:.]*:[0-9a-f:.]*)$/.test(host) || host.length > HOST_LENGTH_MAX || host.includes('..')) return null
  const mapped = /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/.exec(host)
  return mapped === null ? host : unmap(Number.parseInt(mapped[1] as string, 16), Number.parseInt(mapped[2] as string, 16))
}

/** A rule as text, in normal form after the check. Lists are joined with commas. */
export const egressSchema = z.string().max(TEXT_LENGTH_MAX)
  .superRefine((text, context) => {
    try {
      parseEgress(text)
    } catch (error) {
      context.addIssue({ code: 'custom', message: (error as Error).message })
    }
  })
  .overwrite(normaliseEgress)
  .meta({ examples: ['deny', 'allow', '*.example.org,registry.example:443'] })

/** Normal form of a rule's text; what is no rule stays as it is. */
function normaliseEgress(text: string): string {
  try {
    return formatEgress(parseEgress(text))
  } catch {
    return text
  }
}

/** Blocked targets that are remembered of a sandbox; the one longest not tried goes first. */
export const BLOCKED_TARGETS_MAX = 100

/** Attempts on one host that was not to be reached. */
export const blockedAttemptSchema = z.object({
  /** `host:port` */
  target: z.string(),
  count: z.number().int(),
  lastAt: z.string(),
  /** Why, in words. */
  reason: z.string(),
})
export type BlockedAttempt = z.infer<typeof blockedAttemptSchema>

/** A line about blocked attempts, for reports; empty when there are none. */
export function describeBlocked(attempts: readonly BlockedAttempt[]): string {
  const shown = attempts.slice(0, SHOWN_MAX).map(({ target, count }) => `${target} (${count})`)
  const rest = attempts.length - shown.length
  return shown.length === 0 ? '' : `blocked: ${shown.join(', ')}${rest === 0 ? '' : ` and ${rest} more`}`
}

/** Proxies that the host itself goes out through. */
export interface HostProxies {
  /** URL for plain HTTP; null: none. */
  http: string | null
  /** URL for everything else; null: none. */
  https: string | null
  /** Hosts reached without them, as NO_PROXY has it. */
  except: string[]
}

/** A host that goes out directly. */
export const NO_PROXIES: HostProxies = { http: null, https: null, except: [] }

function parsePattern(entry: string): HostPattern {
  if (entry === '') throw invalid('an empty entry in the list of hosts')
  if (entry === 'deny' || entry === 'allow') throw invalid(`"${entry}" in a list of hosts: it stands alone`)
  const match = /^(\[[^\]]*\]|[^:]*|.*:.*:.*?)(?::(\d+))?$/.exec(entry)
  const port = match?.[2] === undefined ? null : Number(match[2])
  const host = match === null ? null : normalisePattern(match[1] as string)
  if (host === null) throw invalid(`${JSON.stringify(entry)} is no host: use a name, *.name, * or an address, each with or without :port`)
  if (port !== null && (port < 1 || port > 65_535)) throw invalid(`${JSON.stringify(entry)} has an impossible port`)
  return { host, port }
}

function normalisePattern(text: string): string | null {
  if (text === '*') return '*'
  if (!text.startsWith('*.')) return normaliseHost(text)
  const parent = normaliseHost(text.slice(2))
  // An address has no names below it.
  return parent === null || /^[\d.]+$/.test(parent) || parent.includes(':') ? null : `*.${parent}`
}

function hasPort(pattern: HostPattern, port: number): boolean {
  return pattern.port === null ? DEFAULT_PORTS.includes(port) : pattern.port === port
}

function unmap(high: number, low: number): string {
  return [high >> 8, high & 255, low >> 8, low & 255].join('.')
}

function invalid(what: string): Kosa8Error {
  return new Kosa8Error('CONFIG_INVALID', what, { hint: 'deny, allow, or hosts such as registry.example,*.example.org,127.0.0.1:8080' })
}
