/** An agent's side: the official client, connected in memory to a server over in-memory services. */
import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js'
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js'
import { onTestFinished } from 'vitest'
import { createMcpServer } from '../../src/mcp/server.js'
import { Kosa8Client } from '../../src/sdk/client.js'
import { serveHome, temporaryFolder } from '../daemon-server/serve.js'

/** A folder that looks like a repository, with two scripts as approaches. */
export async function createProject(): Promise<string> {
  const folder = await temporaryFolder()
  await mkdir(path.join(folder, '.git'))
  await mkdir(path.join(folder, '.kosa8', 'approaches'), { recursive: true })
  for (const name of ['a', 'b']) await writeFile(path.join(folder, '.kosa8', 'approaches', `${name}.sh`), `echo ${name}\n`)
  return folder
}

export interface Answer {
  text: string
  content: Record<string, unknown>
  isError: boolean
}

/** Calls a tool as an agent does. */
export async function callTool(client: Client, name: string, input: Record<string, unknown> = {}, options: Parameters<Client['callTool']>[2] = {}): Promise<Answer> {
  const result = await client.callTool({ name, arguments: input }, undefined, options) as CallToolResult
  const [first] = result.content
  return { text: first?.type === 'text' ? first.text : '', content: result.structuredContent ?? {}, isError: result.isError === true }
}

/** A connected client, and the services behind the daemon it reaches. */
export async function connectAgent(options: { heartbeatMs?: number } = {}) {
  const served = await serveHome()
  const cwd = await createProject()
  const logged: string[] = []
  const host = { client: new Kosa8Client({ home: served.home }), cwd, log: (line: string) => { logged.push(line) } }
  const { server, whenIdle } = createMcpServer(host, options.heartbeatMs)
  const client = new Client({ name: 'test', version: '1' })
  const [near, far] = InMemoryTransport.createLinkedPair()
  await Promise.all([server.connect(far), client.connect(near)])
  onTestFinished(() => client.close())
  const call = (name: string, input?: Record<string, unknown>, callOptions?: Parameters<Client['callTool']>[2]) => callTool(client, name, input, callOptions)
  return { ...served, cwd, logged, client, call, whenIdle }
}
