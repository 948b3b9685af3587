/** Where a daemon is: the path of its socket, or the address and token of its listener. */
import { request as httpRequest, type ClientRequest, type RequestOptions } from 'node:http'
import { request as httpsRequest } from 'node:https'
import type { RemoteDaemon } from '../model/remote-daemon.js'

export type DaemonAddress = string | RemoteDaemon

/** Begins an HTTP request to a daemon. */
export function requestTo(address: DaemonAddress, options: RequestOptions): ClientRequest {
  if (typeof address === 'string') return httpRequest({ ...options, socketPath: address })
  const headers = { ...options.headers as Record<string, string>, authorization: `Bearer ${address.token}` }
  return (address.url.startsWith('https:') ? httpsRequest : httpRequest)(address.url, { ...options, headers })
}

/** As people are told it. */
export function tellAddress(address: DaemonAddress): string {
  return typeof address === 'string' ? address : address.url
}
