import { afterEach, beforeEach, expect, test } from 'vitest'
import { openGuestSession, type AgentSession } from '../../src/guest/agent-session.js'
import { runInGuest } from '../../src/guest/run-in-guest.js'
import { startAgent, type AgentUnderTest } from './agent-under-test.js'

let agent: AgentUnderTest
let session: AgentSession

beforeEach(async () => {
  agent = await startAgent()
  session = await openGuestSession(agent.openChannel())
})

afterEach(async () => {
  session.end()
  await agent.end()
})

test('a command has its exit status, both outputs and nothing left over', async () => {
  const result = await runInGuest(session, { argv: ['sh', '-c', 'echo out; echo err >&2; exit 3'] })
  expect(result).toEqual({
    exit: { code: 3, signal: null }, stdout: Buffer.from('out\n'), stderr: Buffer.from('err\n'),
    truncated: false, timedOut: false, leftovers: [],
  })
})
