import { Readable } from 'node:stream'
import { expect, test } from 'vitest'
import { runInGuest, type GuestRunOptions, type GuestRunResult } from '../../src/guest/run-in-guest.js'
import { useAgent } from './agent-under-test.js'

const bench = useAgent()

const shell = (script: string, options?: GuestRunOptions): Promise<GuestRunResult> =>
  runInGuest(bench.session, { argv: ['sh', '-c', script] }, options)

test('a command has its exit status, both outputs and nothing left over', async () => {
  expect(await shell('echo out; echo err >&2; exit 3')).toEqual({
    exit: { code: 3, signal: null }, stdout: Buffer.from('out\n'), stderr: Buffer.from('err\n'),
    truncated: false, timedOut: false, leftovers: [],
  })
})

test('a command that dies by a signal says which', async () => {
  expect((await shell('kill -SEGV $$')).exit).toEqual({ code: null, signal: 11 })
})

test('a child that holds the pipes does not keep the command from ending, and is killed and named', async () => {
  const result = await shell('sleep 1000 & echo started')
  expect(result.exit).toEqual({ code: 0, signal: null })
  expect(result.stdout.toString()).toBe('started\n')
  expect(result.leftovers).toEqual([{ pid: expect.any(Number) as number, name: 'sleep' }])
})

test('output that comes within the grace after the end is kept', async () => {
  const result = await shell('(sleep 0.2; echo late) & echo early', { graceMs: 20_000 })
  expect(result.stdout.toString()).toBe('early\nlate\n')
  expect(result.leftovers).toEqual([])
})

test('what an ended command left in its pipe arrives even without grace', async () => {
  const result = await shell('head -c 60000 /dev/zero; sleep 1000 &', { graceMs: 0 })
  expect(result.stdout.length).toBe(60_000)
})

test('a command over its time is killed with all its children', async () => {
  const result = await shell('sleep 1000 & sleep 1001', { timeoutMs: 300 })
  expect(result.timedOut).toBe(true)
  expect(result.exit).toEqual({ code: null, signal: 9 })
  expect(result.leftovers.map(({ name }) => name).sort()).toEqual(['sh', 'sleep', 'sleep'])
})

test('an aborted command is killed and rejects as cancelled', async () => {
  const abort = new AbortController()
  const running = shell('echo up; sleep 1000.75', { signal: abort.signal, onOutput: () => abort.abort() })
  await expect(running).rejects.toMatchObject({ code: 'CANCELLED' })
  const left = await shell('ps -o args -e | grep -c "^sleep 1000.75" || true')
  expect(left.stdout.toString()).toBe('0\n')
})

test('output beyond its limit is dropped, and the command still ends by itself', async () => {
  const result = await shell('head -c 3000000 /dev/zero; exit 5', { outputBytesMax: 1_000 })
  expect(result.stdout.length).toBe(1_000)
  expect(result.truncated).toBe(true)
  expect(result.exit.code).toBe(5)
})

test('without input standard input is at its end', async () => {
  expect((await shell('cat; echo end')).stdout.toString()).toBe('end\n')
})

test('input comes from texts and streams', async () => {
  expect((await shell('cat', { stdin: 'text' })).stdout.toString()).toBe('text')
  expect((await shell('cat', { stdin: Readable.from(['a', 'b']) })).stdout.toString()).toBe('ab')
})

test('a command that does not read its input ends with its own status', async () => {
  const endless = new Readable({ read() { this.push(Buffer.alloc(65536)) } })
  expect((await shell('exit 4', { stdin: endless })).exit.code).toBe(4)
})

test('a failing source of input ends the command and is the error of the call', async () => {
  const broken = new Readable({ read() { this.destroy(new Error('the source broke')) } })
  await expect(shell('cat', { stdin: broken })).rejects.toThrow('the source broke')
})
