/**
 * The proxy that a guest without a network card goes out through: HTTP by absolute URL, anything else by CONNECT, to the
 * hosts of a list.
 *
 * Owns: serving the guest's connections, refusing and noting what the rule does not allow. Does not own: how connections
 * come here (`guest`), the decision (`destination.ts`). Everything the guest sends is bounded: connections by the session,
 * headers by the parser, time by the limits here.
 */
import { createServer, type IncomingMessage, type OutgoingHttpHeaders, type Server, type ServerResponse } from 'node:http'
import { pipeline, type Duplex } from 'node:stream'
import { formatAuthority, formatEgress, normaliseHost, type BlockedAttempt, type EgressRule, type HostProxies } from '../model/egress.js'
import { BlockedAttempts } from './blocked-attempts.js'
import { describeFailure, IDLE_TIMEOUT_MS, openRequest, openTunnel } from './connect.js'
import { decide, type Decision, type Resolve, type Route, type Target } from './destination.js'

/** Port on the guest's loopback: only root of the guest could take it, and nothing common does. */
export const EGRESS_PORT = 880
/** For a request's header, counted from the connection's begin or the end of the answer before. */
const HEADER_TIMEOUT_MS = 60_000
/** Headers that are between two neighbours only. */
const HOP_BY_HOP = new Set([
  'connection', 'keep-alive', 'proxy-connection', 'proxy-authenticate', 'proxy-authorization', 'te', 'trailer', 'transfer-encoding',
  'upgrade', 'expect', 'host',
])

/** What a proxy works with. */
export interface EgressProxyParts {
  rule: EgressRule
  proxies: HostProxies
  /** What to do to allow an entry, in words. */
  advise: (entry: string, rule: string) => string
  onBlocked?: (attempt: BlockedAttempt) => void
  resolve?: Resolve
}

/** The way out of one sandbox; a gateway for its session. */
export class EgressProxy {
  readonly port = EGRESS_PORT
  private readonly blocked: BlockedAttempts
  private readonly server: Server
  private readonly open = new Map<Duplex, OpenConnection>()
  private rule_: EgressRule

  constructor(private readonly parts: EgressProxyParts) {
    this.rule_ = parts.rule
    this.blocked = new BlockedAttempts(parts.onBlocked)
    this.server = createServer({ keepAliveTimeout: 0, requestTimeout: 0, headersTimeout: 0 })
    this.server.on('request', (request, response) => void this.serveRequest(request, response))
    this.server.on('connect', (request, connection: Duplex, head: Buffer) => void this.serveTunnel(request, connection, head))
    this.server.on('clientError', (_error, connection: Duplex) => this.answerBare(connection, 400, 'this is no request the proxy understands'))
  }

  get rule(): EgressRule {
    return this.rule_
  }

  /** Changes the rule; connections to hosts it does not have are ended. */
  set rule(rule: EgressRule) {
    if (formatEgress(rule) === formatEgress(this.rule_)) return
    this.rule_ = rule
    for (const [connection, { target }] of this.open) {
      if (target !== null) void this.decideOn(target).then((decision) => { if ('refusal' in decision && decision.isBlocked) connection.destroy() })
    }
  }

  /** What was refused, the latest first. */
  blockedAttempts(): BlockedAttempt[] {
    return this.blocked.list()
  }

  /** Serves a connection of the guest. */
  onConnection(connection: Duplex): void {
    this.open.set(connection, { target: null, headerTimer: undefined })
    connection.once('close', () => {
      this.endHeaderTime(connection)
      this.open.delete(connection)
    })
    this.beginHeaderTime(connection)
    this.server.emit('connection', connection)
  }

  /** Ends every connection. */
  close(): void {
    for (const connection of this.open.keys()) connection.destroy()
  }

  private async serveTunnel(request: IncomingMessage, connection: Duplex, head: Buffer): Promise<void> {
    this.endHeaderTime(connection)
    connection.on('error', () => connection.destroy())
    const target = parseTarget(request.url ?? '')
    if (target === null) return this.answerBare(connection, 400, 'CONNECT needs host:port')
    this.noteTarget(connection, target)
    const decision = await this.decideOn(target)
    if (!('route' in decision)) return this.answerBare(connection, decision.isBlocked ? 403 : 502, this.refuse(target, decision))
    try {
      const { socket, head: first } = await openTunnel(target, decision.route)
      if (connection.destroyed) {
        socket.destroy()
        return
      }
      socket.setTimeout(IDLE_TIMEOUT_MS, () => socket.destroy())
      connection.write('HTTP/1.1 200 Connection established\r\n\r\n')
      if (first.length > 0) connection.write(first)
      if (head.length > 0) socket.write(head)
      join(connection, socket)
    } catch (error) {
      this.answerBare(connection, 502, `${formatAuthority(target.host, target.port)} cannot be reached: ${describeFailure(decision.route, error as Error)}`)
    }
  }

  private async serveRequest(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const connection = request.socket as Duplex
    this.endHeaderTime(connection)
    response.once('close', () => this.beginHeaderTime(connection))
    response.on('error', () => connection.destroy())
    const wanted = parseRequest(request)
    if (typeof wanted === 'string') return answer(response, 400, wanted)
    this.noteTarget(connection, wanted.target)
    const decision = await this.decideOn(wanted.target)
    if (!('route' in decision)) return answer(response, decision.isBlocked ? 403 : 502, this.refuse(wanted.target, decision))
    this.forward(request, response, wanted, decision.route)
  }

  private forward(request: IncomingMessage, response: ServerResponse, { target, path }: WantedRequest, route: Route): void {
    const isChunked = request.headers['transfer-encoding'] !== undefined
    const headers = {
      ...endToEnd(request), host: hostHeader(target), connection: 'close', ...(isChunked ? { 'transfer-encoding': 'chunked' } : {}),
    }
    const asking = openRequest(target, route, { method: request.method ?? 'GET', path, headers })
    asking.once('timeout', () => asking.destroy(new Error('nothing has moved for too long')))
    asking.once('response', (answered) => {
      try {
        response.writeHead(answered.statusCode ?? 502, endToEnd(answered))
      } catch {
        asking.destroy()
        return answer(response, 502, 'the answer cannot be passed on')
      }
      pipeline(answered, response, () => undefined)
    })
    asking.once('error', (error) => {
      if (response.headersSent) response.destroy()
      else answer(response, 502, `${formatAuthority(target.host, target.port)} cannot be reached: ${describeFailure(route, error)}`)
    })
    response.once('close', () => asking.destroy())
    // The answer may come, and the connection end, before the whole request is sent.
    pipeline(request, asking, () => undefined)
  }

  /**
   * An answer on a connection that the HTTP server has let go of. What else comes is dropped until the program ends its side: a
   * connection that is broken off may take the answer with it.
   */
  private answerBare(connection: Duplex, status: number, text: string): void {
    if (connection.destroyed || !connection.writable) return
    const body = `kosa8: ${text}\n`
    const words: Record<number, string> = { 400: 'Bad Request', 403: 'Forbidden', 502: 'Bad Gateway' }
    this.beginHeaderTime(connection)
    connection.end(`HTTP/1.1 ${status} ${words[status]}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: ${Buffer.byteLength(body)}\r\n`
      + `connection: close\r\n\r\n${body}`)
    connection.resume()
  }

  private noteTarget(connection: Duplex, target: Target): void {
    const open = this.open.get(connection)
    if (open !== undefined) open.target = target
  }

  private beginHeaderTime(connection: Duplex): void {
    const open = this.open.get(connection)
    if (open !== undefined) open.headerTimer = setTimeout(() => connection.destroy(), HEADER_TIMEOUT_MS)
  }

  private endHeaderTime(connection: Duplex): void {
    clearTimeout(this.open.get(connection)?.headerTimer)
  }

  private async decideOn(target: Target): Promise<Decision> {
    return decide(this.rule_, target, this.parts.proxies, this.parts.resolve)
  }

  /** Notes a refusal; says what was refused and how it could be allowed. */
  private refuse({ host, port }: Target, { refusal, isBlocked }: Exclude<Decision, { route: Route }>): string {
    const target = formatAuthority(host, port)
    if (!isBlocked) return `${target} cannot be reached: ${refusal}`
    this.blocked.note(target, refusal)
    const entry = port === 443 || port === 80 ? host : target
    return `blocked: ${target}: ${refusal}. ${this.parts.advise(entry, formatEgress(this.rule_))}`
  }
}

/** A connection of the guest's. */
interface OpenConnection {
  /** Where it leads; null while it leads nowhere. */
  target: Target | null
  headerTimer: NodeJS.Timeout | undefined
}

/** A plain request as it is to be passed on. */
interface WantedRequest {
  target: Target
  /** Path and query. */
  path: string
}

/** The request's URL decides on the host; a Host header that says something else is not passed on. */
function parseRequest(request: IncomingMessage): WantedRequest | string {
  const text = request.url ?? ''
  if (!/^http:\/\//i.test(text) || !URL.canParse(text)) return 'this is the proxy of the sandbox: it takes http:// URLs and CONNECT'
  const url = new URL(text)
  const host = normaliseHost(url.hostname)
  if (host === null) return 'this URL names no host'
  return { target: { host, port: url.port === '' ? 80 : Number(url.port), isTunnel: false }, path: `${url.pathname}${url.search}` }
}

/** `host:port` of a CONNECT. */
function parseTarget(authority: string): Target | null {
  const match = /^(.+):(\d{1,5})$/.exec(authority)
  const host = normaliseHost(match?.[1] ?? '')
  const port = Number(match?.[2])
  return host === null || port < 1 || port > 65_535 ? null : { host, port, isTunnel: true }
}

function hostHeader({ host, port }: Target): string {
  const authority = formatAuthority(host, port)
  return port === 80 ? authority.slice(0, -':80'.length) : authority
}

/** The headers that are meant for the other end, repeated ones kept. */
function endToEnd(message: IncomingMessage): OutgoingHttpHeaders {
  const named = new Set((message.headers.connection ?? '').toLowerCase().split(',').map((name) => name.trim()))
  const headers: Record<string, string | string[]> = {}
  for (const [name, values] of Object.entries(message.headersDistinct)) {
    if (values === undefined || HOP_BY_HOP.has(name) || named.has(name)) continue
    headers[name] = values.length === 1 ? values[0] as string : values
  }
  return headers
}

/** Both directions, each ended on its own; what breaks on one side ends the other. */
function join(one: Duplex, other: Duplex): void {
  const end = (): void => {
    one.destroy()
    other.destroy()
  }
  for (const [from, to] of [[one, other], [other, one]] as const) {
    from.on('error', end)
    from.once('close', () => { if (!from.readableEnded || !from.writableFinished) end() })
    from.pipe(to)
  }
}

function answer(response: ServerResponse, status: number, text: string): void {
  if (response.headersSent || response.destroyed) return
  const body = `kosa8: ${text}\n`
  // What is left of the request is not read: the connection ends with the answer.
  response.writeHead(status, { 'content-type': 'text/plain; charset=utf-8', 'content-length': Buffer.byteLength(body), connection: 'close' })
  response.end(body)
}
