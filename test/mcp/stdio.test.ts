import { once } from 'node:events'
import path from 'node:path'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { describe, expect, it, onTestFinished } from 'vitest'
import { findPackageRoot } from '../../src/util/package-root.js'
import { spawnProgram } from '../../src/util/spawn.js'
import { serveHome } from '../daemon-server/serve.js'
import { callTool, createProject } from './connect.js'

const CLI = path.join(findPackageRoot(), 'dist/src/cli/main.js')
const INITIALIZE = '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}\n'

function environmentOf(home: string): Record<string, string> {
  return { PATH: process.env['PATH'] ?? '', KOSA8_HOME: home }
}

describe('kosa8 mcp', () => {
  it('serves a client over standard input and output, and relative to the folder it is started in', async () => {
    const { home } = await serveHome()
    const cwd = await createProject()
    const transport = new StdioClientTransport({ command: process.execPath, args: [CLI, 'mcp'], env: environmentOf(home), cwd })
    const client = new Client({ name: 'test', version: '1' })
    onTestFinished(() => client.close())
    await client.connect(transport)
    expect((await client.listTools()).tools.length).toBe(11)
    expect((await callTool(client, 'sandbox_create', { name: 'db', repository: '.' })).content).toMatchObject({ sandbox: { name: 'db', repository: cwd } })
    expect((await callTool(client, 'sandbox_exec', { name: 'nodb', command: 'ls' })).content).toMatchObject({ error: { code: 'SANDBOX_UNKNOWN' } })
  })

  it('cancels a run and ends with status 0 when its client closes its side', async () => {
    const { home, services } = await serveHome()
    const server = spawnProgram(process.execPath, [CLI, 'mcp'], { cwd: await createProject(), env: environmentOf(home), stdio: ['pipe', 'pipe', 'pipe'] })
    const ended = once(server, 'exit')
    let printed = ''
    server.stdout?.on('data', (chunk: Buffer) => { printed += chunk.toString() })
    server.stdin?.write(`${INITIALIZE}this is no message\n`)
    server.stdin?.write('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fork_run","arguments":{"approaches":["a"]}}}\n')
    await expect.poll(() => services.runs.eventRequests.length, { timeout: 60_000 }).toBe(1)
    server.stdin?.end()
    expect(await ended).toEqual([0, null])
    expect(services.runs.cancellations).toMatchObject([{ as: 'cancelled' }])
    for (const line of printed.trimEnd().split('\n')) expect(JSON.parse(line)).toMatchObject({ jsonrpc: '2.0' })
  })
})
