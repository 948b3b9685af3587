import { Readable } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { Kosa8Client } from '../../src/sdk/client.js'
import { createKeyPair } from '../../src/util/ed25519.js'
import { runDocument, trialResult } from '../cli/documents.js'
import { RUN_ID } from '../daemon-server/memory-services.js'
import { connectAgent } from './connect.js'

const OTHER_RUN = 'r20260102-030405-ffffffff'

describe('the tools of the MCP server', () => {
  it('are listed with a description and a closed input schema each', async () => {
    const { client } = await connectAgent()
    const { tools } = await client.listTools()
    expect(tools.map(({ name }) => name)).toEqual([
      'sandbox_create', 'sandbox_list', 'sandbox_exec', 'sandbox_remove', 'sandbox_read_file', 'sandbox_write_file',
      'sandbox_checkpoint', 'sandbox_checkpoint_list', 'sandbox_rewind', 'fork_run', 'fork_result',
    ])
    for (const { description, inputSchema } of tools) {
      expect(description).toMatch(/\w{3}/)
      expect(inputSchema).toMatchObject({ type: 'object', additionalProperties: false })
    }
    expect(client.getInstructions()).toContain('sandbox_checkpoint')
  })

  it('that destroy something say so, those that only look say so', async () => {
    const { client } = await connectAgent()
    const { tools } = await client.listTools()
    const named = (hint: 'destructiveHint' | 'readOnlyHint') => tools.filter(({ annotations }) => annotations?.[hint] === true).map(({ name }) => name)
    expect(named('destructiveHint')).toEqual(['sandbox_exec', 'sandbox_remove', 'sandbox_write_file', 'sandbox_rewind'])
    expect(named('readOnlyHint')).toEqual(['sandbox_list', 'sandbox_read_file', 'sandbox_checkpoint_list', 'fork_result'])
  })

  it('create, list and remove sandboxes', async () => {
    const { call, services } = await connectAgent()
    expect((await call('sandbox_create', { name: 'db', memoryMib: 512 })).text).toBe('db is running (image base, 512 MiB, cpus 1, egress deny)')
    expect((await call('sandbox_list')).content).toMatchObject({ total: 1, sandboxes: [{ name: 'db', state: 'running' }] })
    expect(await call('sandbox_remove', { name: 'db' })).toMatchObject({ text: 'removed db', isError: false })
    expect(services.sandboxes.all.size).toBe(0)
    expect((await call('sandbox_list')).text).toBe('there are no sandboxes')
  })

  it('create a sandbox with a repository as its kosa8.yaml asks', async () => {
    const { call, cwd } = await connectAgent()
    expect((await call('sandbox_create', { name: 'web', repository: '.', cpus: 2 })).content).toMatchObject({
      sandbox: { repository: cwd, cpus: 2, memoryMib: 1024, egress: 'deny' },
    })
  })

  it('stop creating a sandbox when the call is cancelled', async () => {
    const { call, services, whenIdle } = await connectAgent()
    services.sandboxes.createWaits = true
    const cancelling = new AbortController()
    const creating = call('sandbox_create', { name: 'db' }, { signal: cancelling.signal })
    await services.sandboxes.createStarted.promise
    cancelling.abort('enough')
    await expect(creating).rejects.toThrow('enough')
    await whenIdle()
    await expect.poll(() => services.sandboxes.createWasAborted).toBe(true)
  })

  it('say which request waits for a person, and do it with its approval, once', async () => {
    const { call, services, home } = await connectAgent()
    const { privateKey, publicKey } = createKeyPair(null)
    expect((await call('sandbox_create', { name: 'db', approvals: publicKey })).text).toMatch(/egress deny, with approvals\)$/)
    await call('sandbox_checkpoint', { name: 'db' })
    const person = new Kosa8Client({ home })
    for (const [tool, input] of [['sandbox_rewind', { name: 'db' }], ['sandbox_remove', { name: 'db' }]] as const) {
      const refused = await call(tool, input)
      expect(refused).toMatchObject({ isError: true, content: { error: { code: 'APPROVAL_REQUIRED' } } })
      const approval = /request ([0-9a-f]{16}) waits/.exec(refused.text)?.[1] as string
      expect(await call(tool, { ...input, approval })).toMatchObject({ isError: true })
      await person.approvals.approve(await person.approvals.get(approval), { privateKey })
      expect(await call(tool, { ...input, approval }), tool).toMatchObject({ isError: false })
      expect(await call(tool, { ...input, approval })).toMatchObject({ isError: true })
    }
    expect(services.sandboxes.all.size).toBe(0)
  })

  it('take, list and go back to checkpoints that the command line sees too', async () => {
    const { call } = await connectAgent()
    await call('sandbox_create', { name: 'db' })
    expect((await call('sandbox_checkpoint', { name: 'db', label: 'before migration' })).text).toBe('took db-ckpt-1 (before migration)')
    expect((await call('sandbox_checkpoint', { name: 'db' })).content).toMatchObject({ checkpoint: { id: 'db-ckpt-2', label: null, by: 'agent' }, evicted: [] })
    expect((await call('sandbox_checkpoint_list', { name: 'db' })).content).toMatchObject({ checkpoints: [{ id: 'db-ckpt-1' }, { id: 'db-ckpt-2' }] })
    const rewound = await call('sandbox_rewind', { name: 'db', to: 'Before Migration' })
    expect(rewound.content).toMatchObject({ checkpoint: { id: 'db-ckpt-1' }, restore_ms: 90, dropped: ['db-ckpt-2'] })
    expect(rewound.text).toBe('rewound to db-ckpt-1 (before migration) in 90 ms; dropped db-ckpt-2')
  })
})

describe('a failure', () => {
  it.each<[string, string, Record<string, unknown>, { code: string; message: RegExp; hint: RegExp }]>([
    ['of the daemon', 'sandbox_exec', { name: 'nodb', command: 'ls' }, { code: 'SANDBOX_UNKNOWN', message: /^there is no sandbox nodb$/, hint: /kosa8 ls/ }],
    ['of a wrong field', 'sandbox_create', { name: 'db', memory: 5 }, { code: 'USAGE', message: /^sandbox_create: .*memory/, hint: /input schema/ }],
    ['of a wrong value', 'sandbox_exec', { name: 'NO', command: 'ls' }, { code: 'USAGE', message: /^sandbox_exec: name: use 1 to 40/, hint: /input schema/ }],
    ['of an unknown approach', 'fork_run', { approaches: ['aa'] }, { code: 'APPROACH_UNKNOWN', message: /^there is no approach aa$/, hint: /did you mean a\?/ }],
    ['of an unknown run', 'fork_result', { run: OTHER_RUN }, { code: 'RUN_UNKNOWN', message: /there is no run/, hint: /kosa8 runs/ }],
    ['without any run', 'fork_result', {}, { code: 'RUN_UNKNOWN', message: /no runs yet/, hint: /fork_run/ }],
  ])('%s is an answer with code, message and hint', async (_what, tool, input, { code, message, hint }) => {
    const { call } = await connectAgent()
    const answer = await call(tool, input)
    expect(answer).toMatchObject({ isError: true, content: { error: { code, message: expect.stringMatching(message) as string, hint: expect.stringMatching(hint) as string } } })
    expect(answer.text).toMatch(new RegExp(`^${code}: .*\nhint: `))
  })

  it('of our own making is told without ending the server, and logged', async () => {
    const { call, services, logged } = await connectAgent()
    services.sandboxes.list = () => Promise.reject(new Error('oh no'))
    expect((await call('sandbox_list')).content).toMatchObject({ error: { code: 'INTERNAL', message: 'oh no' } })
    expect(logged.join()).toContain('sandbox_list: ')
    expect((await call('sandbox_create', { name: 'db' })).isError).toBe(false)
  })

  it('of a tool that does not exist is one of the protocol', async () => {
    const { call } = await connectAgent()
    await expect(call('sandbox_destroy')).rejects.toThrow('there is no tool sandbox_destroy')
  })
})

describe('a command', () => {
  async function withSandbox() {
    const agent = await connectAgent()
    await agent.call('sandbox_create', { name: 'db' })
    const { sandboxes } = agent.services
    const exec = sandboxes.exec.bind(sandboxes)
    // The in-memory sandbox has no shell: it is given the words of the command.
    sandboxes.exec = (name, request) => exec(name, { ...request, argv: (request.argv[2] as string).split(' ') })
    return agent
  }

  it('is given to a shell, with folder, user and environment', async () => {
    const { call, services } = await connectAgent()
    await call('sandbox_create', { name: 'db' })
    const requests: unknown[] = []
    const { sandboxes } = services
    sandboxes.exec = (_name, request) => { requests.push(request); return Promise.reject(new Error('seen')) }
    await call('sandbox_exec', { name: 'db', command: 'make "all"', cwd: '/tmp', user: 'nobody', env: { A: '1' } })
    expect(requests).toEqual([{ argv: ['sh', '-c', 'make "all"'], cwd: '/tmp', user: 'nobody', env: { A: '1' } }])
  })

  it('that fails is no error of the tool', async () => {
    const { call } = await withSandbox()
    const answer = await call('sandbox_exec', { name: 'db', command: 'print out err 3' })
    expect(answer).toEqual({
      isError: false, text: 'exit code 3\n--- stdout\nout\n--- stderr\nerr',
      content: { exitCode: 3, signal: null, timedOut: false, stdout: 'out', stderr: 'err', omittedBytes: 0 },
    })
  })

  it('reads the input it is given', async () => {
    const { call } = await withSandbox()
    expect((await call('sandbox_exec', { name: 'db', command: 'cat', stdin: 'lines' })).content).toMatchObject({ exitCode: 0, stdout: 'lines' })
  })

  it('may print any amount: the beginning and the end are answered', async () => {
    const { call } = await withSandbox()
    const { content, text } = await call('sandbox_exec', { name: 'db', command: 'flood 5000000' })
    expect(content).toMatchObject({ exitCode: 0, omittedBytes: 5_000_000 - 32 * 1024, stdout: expect.stringContaining('bytes left out') as string })
    expect(text.length).toBeLessThan(70_000)
  })

  it('is killed when its time is over, and what it printed is answered', async () => {
    const { call, services } = await withSandbox()
    const answer = await call('sandbox_exec', { name: 'db', command: 'wait', timeoutSeconds: 1 })
    expect(answer.content).toMatchObject({ exitCode: null, timedOut: true })
    await expect.poll(() => services.sandboxes.processes[0]?.isClosed).toBe(true)
  })

  it('is killed when the call is cancelled', async () => {
    const { call, services, whenIdle } = await withSandbox()
    const cancelling = new AbortController()
    const running = call('sandbox_exec', { name: 'db', command: 'wait' }, { signal: cancelling.signal })
    await expect.poll(() => services.sandboxes.processes.length).toBe(1)
    cancelling.abort('enough')
    await expect(running).rejects.toThrow('enough')
    await whenIdle()
    await expect.poll(() => services.sandboxes.processes[0]?.isClosed).toBe(true)
  })
})

describe('a file', () => {
  it('is written and read back, with its mode', async () => {
    const { call, services } = await connectAgent()
    await call('sandbox_create', { name: 'db' })
    expect((await call('sandbox_write_file', { name: 'db', path: 'a.sh', content: 'é\n', mode: '755' })).content).toEqual({ path: 'a.sh', bytes: 3 })
    expect(services.sandboxes.fileModes).toEqual([0o755])
    expect((await call('sandbox_read_file', { name: 'db', path: 'a.sh' })).content).toEqual({ path: 'a.sh', encoding: 'utf8', content: 'é\n', bytes: 3, nextOffset: null })
  })

  it('that is no text travels as base64 both ways', async () => {
    const { call } = await connectAgent()
    await call('sandbox_create', { name: 'db' })
    const content = Buffer.from([0xff, 0, 1]).toString('base64')
    await call('sandbox_write_file', { name: 'db', path: 'x', content, encoding: 'base64' })
    expect((await call('sandbox_read_file', { name: 'db', path: 'x' })).content).toMatchObject({ encoding: 'base64', content, bytes: 3 })
    expect((await call('sandbox_write_file', { name: 'db', path: 'x', content: '?', encoding: 'base64' })).content).toMatchObject({ error: { code: 'USAGE' } })
  })

  it('of any size is read in parts that join without cutting a character', async () => {
    const { call, services } = await connectAgent()
    await call('sandbox_create', { name: 'db' })
    const whole = 'aé€😀'.repeat(40)
    services.sandboxes.readFile = () => Promise.resolve(Readable.from(chunksOf(Buffer.from(whole), 7)))
    let joined = ''
    for (let offset: number | null = 0; offset !== null;) {
      const { content }: { content: Record<string, unknown> } = await call('sandbox_read_file', { name: 'db', path: 'x', offset, bytesMax: 9 })
      expect(content).toMatchObject({ encoding: 'utf8' })
      joined += content['content'] as string
      offset = content['nextOffset'] as number | null
    }
    expect(joined).toBe(whole)
  })
})

describe('a fork', () => {
  it('follows the run, tells progress that only grows, and answers with the comparison', async () => {
    const { call, services, cwd } = await connectAgent()
    const { runs } = services
    runs.onStart = () => {
      runs.push({ type: 'run-phase', phase: 'running', message: 'checkpoint taken' })
      runs.push({ type: 'trial-output', label: 'a', repeat: 1, stream: 'stdout', text: 'noise' })
      runs.push({ type: 'trial-end', label: 'a', repeat: 1, state: 'completed', summary: '3 of 3 passed' })
      runs.finish(runDocument())
    }
    const seen: { progress: number; message?: string | undefined }[] = []
    const answer = await call('fork_run', { approaches: ['a', 'b'], test: 'make check', timeoutSeconds: 90, memoryMib: 512 }, { onprogress: (progress) => seen.push(progress) })
    expect(runs.requests[0]).toMatchObject({
      repository: cwd, approaches: [{ approach: 'a', strategy: { kind: 'builtin', name: 'script' }, parameters: { content: 'echo a\n' } }, { approach: 'b' }],
      test: { run: 'make check' }, machine: { memoryMib: 512 }, timeoutMs: 90_000, includeUncommitted: true, keep: 'none',
    })
    expect(seen.map(({ message }) => message?.replace(/^[0-9:]{8} /, ''))).toEqual([
      `run ${RUN_ID} is started`, 'running: checkpoint taken', 'a #1: completed: 3 of 3 passed (trials ended: 1)', 'run completed (trials ended: 1)',
    ])
    expect(seen.map(({ progress }) => progress)).toEqual([1, 2, 3, 4])
    expect(answer.isError).toBe(false)
    expect(answer.text).toContain('winner: a')
    expect(answer.text).toContain(`kosa8 apply ${RUN_ID} a`)
    expect(answer.content).toMatchObject({
      run: RUN_ID, state: 'completed', winner: 'a', ranking: ['a'], wholeDocument: '/runs/1/run.json',
      trials: [{ label: 'a', verdict: 'better', tests: { passed: 3, fixed: ['s › one'] }, diff: { files: 1, ref: `refs/kosa8/${RUN_ID}/a/1` } }],
    })
  })

  it('shows signs of life while nothing happens, so that no client gives it up', async () => {
    const { call, services } = await connectAgent({ heartbeatMs: 5 })
    const { runs } = services
    const seen: string[] = []
    const isStarted = (message: string): boolean => message === `run ${RUN_ID} is started`
    await call('fork_run', { approaches: ['a'] }, { onprogress: ({ message = '' }) => {
      seen.push(message)
      if (seen.filter(isStarted).length === 3) runs.finish(runDocument())
    } })
    expect(seen.filter(isStarted).length).toBeGreaterThanOrEqual(3)
    expect(seen).not.toContain('')
  })

  it('cancels its run when the call is cancelled', async () => {
    const { call, services, whenIdle } = await connectAgent()
    const { runs } = services
    runs.onCancel = () => runs.finish(runDocument({ state: 'cancelled' }))
    const cancelling = new AbortController()
    const running = call('fork_run', { approaches: ['a'] }, { signal: cancelling.signal, onprogress: () => cancelling.abort('enough') })
    await expect(running).rejects.toThrow('enough')
    await expect.poll(() => runs.cancellations).toEqual([{ reason: 'the MCP client cancelled the call, or went away', as: 'cancelled' }])
    await whenIdle()
    expect((await call('fork_result')).content).toMatchObject({ run: RUN_ID, state: 'cancelled', trials: [{ label: 'a' }] })
  })

  it('cancels its run when the client goes away', async () => {
    const { call, client, services } = await connectAgent()
    const running = call('fork_run', { approaches: ['a'] }, { onprogress: () => void client.close() })
    await expect(running).rejects.toThrow('closed')
    await expect.poll(() => services.runs.cancellations.length).toBe(1)
  })

  it('with wait false answers at once; fork_result then tells how it stands and waits for its end', async () => {
    const { call, services } = await connectAgent()
    expect((await call('fork_run', { approaches: ['a'], wait: false })).content).toMatchObject({ run: RUN_ID, state: 'running' })
    expect((await call('fork_result')).content).toEqual({ run: RUN_ID, state: 'running', trials: [{ label: 'a', repeat: 1, phase: 'strategy', message: 'writing', state: null }] })
    const early = await call('fork_result', { approach: 'a' })
    expect(early.content).toMatchObject({ error: { code: 'RUN_ACTIVE' } })
    expect((await call('fork_result', { waitSeconds: 1 })).content).toMatchObject({ state: 'running' })
    const waiting = call('fork_result', { run: RUN_ID, waitSeconds: 600 }, { onprogress: () => undefined })
    services.runs.finish(runDocument())
    expect((await waiting).content).toMatchObject({ state: 'completed', winner: 'a' })
    expect(services.runs.cancellations).toEqual([])
  })

  it('that failed as a whole is an error that still tells what was finished', async () => {
    const { call, services } = await connectAgent()
    const { runs } = services
    const error = { code: 'SETUP_COMMAND_FAILED', message: 'npm ci ended with status 1', hint: 'look at its log' }
    runs.onStart = () => runs.finish(runDocument({ state: 'failed', winner: null, error }))
    const answer = await call('fork_run', { approaches: ['a'] })
    expect(answer).toMatchObject({ isError: true, content: { run: RUN_ID, state: 'failed', error } })
    expect(answer.text).toMatch(/^SETUP_COMMAND_FAILED: npm ci ended with status 1\nhint: look at its log\n/)
  })

  it('tells one trial in full with its patch', async () => {
    const { call, services } = await connectAgent()
    services.runs.finish(runDocument())
    const answer = await call('fork_result', { run: RUN_ID, approach: 'a' })
    expect(answer.content).toMatchObject({ trial: { label: 'a', repeat: 1 }, patch: 'diff a/1 base\n' })
    expect((await call('fork_result', { run: RUN_ID, approach: 'zz' })).content).toMatchObject({ error: { code: 'USAGE', hint: 'there are a' } })
  })

  it('of any size has an answer an agent can read', async () => {
    const { call, services } = await connectAgent()
    const names = Array.from({ length: 40 }, (_each, index) => `suite › ${'long '.repeat(100)}${index}`)
    const tests = { ...trialResult().tests, fixed: names, regressed: names, added: names }
    services.runs.finish(runDocument({ trials: Array.from({ length: 256 }, (_each, repeat) => trialResult({ repeat: repeat + 1, tests, parameters: { content: 'x'.repeat(50_000) } })) }))
    const answer = await call('fork_result', { run: RUN_ID })
    expect(answer.text.length).toBeLessThan(64 * 1024)
    expect(JSON.stringify(answer.content).length).toBeLessThan(1024 * 1024)
    expect(answer.content).toMatchObject({ trials: expect.objectContaining({ length: 256 }) as unknown })
  })
})

function chunksOf(bytes: Buffer, size: number): Buffer[] {
  return Array.from({ length: Math.ceil(bytes.length / size) }, (_each, index) => bytes.subarray(index * size, (index + 1) * size))
}
