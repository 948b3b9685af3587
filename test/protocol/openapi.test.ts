import { request } from 'node:http'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { describeApi, renderOpenApi } from '../../src/protocol/openapi.js'
import { METHODS } from '../../src/protocol/methods.js'
import { STREAM_PATHS } from '../../src/protocol/streams.js'
import { serveHome } from '../daemon-server/serve.js'

const FILE = path.resolve(import.meta.dirname, '../../docs/openapi.json')

interface Operation {
  operationId: string
  parameters?: { name: string; in: string; required: boolean; schema: object }[]
}

function operations(): { path: string; verb: string; operation: Operation }[] {
  const { paths } = describeApi() as { paths: Record<string, Record<string, Operation>> }
  return Object.entries(paths).flatMap(([each, verbs]) => Object.entries(verbs).map(([verb, operation]) => ({ path: each, verb, operation })))
}

describe('the OpenAPI document', () => {
  it('in docs is the one of this source', async () => {
    await expect(renderOpenApi(), 'docs/openapi.json is out of date; write it with: npx vitest run test/protocol/openapi.test.ts -u').toMatchFileSnapshot(FILE)
  })

  it('has every method and every stream, each under a name of its own', () => {
    const all = operations()
    // A file of a sandbox can be read and written.
    expect(all.length).toBe(Object.keys(METHODS).length + Object.keys(STREAM_PATHS).length + 1)
    expect(new Set(all.map(({ operation }) => operation.operationId)).size).toBe(all.length)
  })

  it('declares exactly the parameters its paths have', () => {
    for (const { path: each, operation } of operations()) {
      const declared = (operation.parameters ?? []).filter((parameter) => parameter.in === 'path')
      expect(declared.map(({ name }) => name)).toEqual([...each.matchAll(/\{(\w+)\}/g)].map(([, name]) => name))
      expect(declared.every(({ required }) => required)).toBe(true)
    }
  })

  it('names only what the daemon serves', async () => {
    const { socketPath } = await serveHome()
    for (const { path: each, verb, operation } of operations()) {
      if (operation.operationId === 'exec') continue
      const body = await send(socketPath, verb.toUpperCase(), each.replace(/\{\w+\}/g, '-'))
      expect(body, operation.operationId).not.toContain('the daemon has no')
    }
    expect(await send(socketPath, 'GET', '/v1/nothing')).toContain('the daemon has no')
  })
})

/** Sends a request that is wrong where it can be, so that nothing happens; resolves with the answer. */
function send(socketPath: string, method: string, target: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const outgoing = request({ socketPath, method, path: target, agent: false }, (answer) => {
      let text = ''
      answer.on('data', (chunk: Buffer) => { text += chunk.toString() })
      answer.once('end', () => resolve(text))
    })
    outgoing.once('error', reject)
    outgoing.end()
  })
}
