/** The real agent over a socket pair. */
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import pLimit from 'p-limit'
import { expect, test, vi } from 'vitest'
import { openGuestSession } from '../../src/guest/agent-session.js'
import { encodeFrame, FRAME_TYPE } from '../../src/guest/frames.js'
import { runInGuest } from '../../src/guest/run-in-guest.js'
import { readMemory, useAgent } from './agent-under-test.js'

const MIB = 1024 * 1024
const bench = useAgent()

const shell = async (script: string): Promise<string> =>
  (await runInGuest(bench.session, { argv: ['sh', '-c', script] })).stdout.toString()

test('half a frame in flight to the guest does not matter to the next session', async () => {
  const long = encodeFrame({ type: FRAME_TYPE.exec, flags: 0, stream: 9, payload: randomBytes(30_000) })
  for (const cut of [3, 19, 20, 5_000, long.length - 1]) {
    bench.session.end()
    bench.agent.socket.write(long.subarray(0, cut))
    bench.session = await openGuestSession(bench.agent.openChannel())
    expect(await shell('echo still here')).toBe('still here\n')
  }
})

test('half a frame in flight to the host does not matter to the next session', async () => {
  for (let round = 0; round < 5; round++) {
    const flood = await bench.session.exec({ argv: ['sh', '-c', 'yes flood'] })
    await once(flood.stdout, 'readable')
    bench.session.end()
    bench.agent.socket.read(1 + round * 1_001) // gone with the former session: the rest begins anywhere
    bench.session = await openGuestSession(bench.agent.openChannel())
    expect(await shell('echo still here')).toBe('still here\n')
  }
})

test('a new session while streams flow leaves their commands running, their output drained', async () => {
  const done = path.join(bench.folder, 'done')
  const started = await Promise.all(Array.from({ length: 4 }, (_, index) =>
    bench.session.exec({ argv: ['sh', '-c', `head -c ${4 * MIB} /dev/zero; : > ${done}${index}`] })))
  if (started[0] !== undefined) await once(started[0].stdout, 'readable')
  bench.session.end()
  bench.session = await openGuestSession(bench.agent.openChannel())
  for (let index = 0; index < 4; index++) await vi.waitFor(() => expect(existsSync(`${done}${index}`)).toBe(true), 20_000)
  expect(await shell('echo alive')).toBe('alive\n')
})

test('a command whose input breaks off with its session does not see an end of file', async () => {
  const process = await bench.session.exec({ argv: ['sh', '-c', 'readlink /proc/self/fd/0; exec cat > /dev/null'], stdin: true })
  const [pipe] = await once(process.stdout, 'data') as [Buffer]
  process.stdin?.write('half')
  bench.session.end()
  bench.session = await openGuestSession(bench.agent.openChannel())
  const held = await shell(`ls -l /proc/${bench.agent.pid}/fd | grep -cF '${String(pipe).trim()}'`)
  expect(held).toBe('1\n')
})

test('128 MiB of output arrive unchanged in bounded memory on both sides', async () => {
  const process_ = await bench.session.exec({ argv: ['sh', '-c', `head -c ${128 * MIB} /dev/zero | tr '\\0' k`] })
  const hash = createHash('sha256')
  let sizeBytes = 0
  let peakBuffers = 0
  for await (const chunk of process_.stdout) {
    hash.update(chunk as Buffer)
    sizeBytes += (chunk as Buffer).length
    peakBuffers = Math.max(peakBuffers, process.memoryUsage().arrayBuffers)
  }
  await process_.close()
  expect(sizeBytes).toBe(128 * MIB)
  const expected = createHash('sha256')
  for (let i = 0; i < 128; i++) expected.update(Buffer.alloc(MIB, 'k'))
  expect(hash.digest('hex')).toBe(expected.digest('hex'))
  expect((await readMemory(bench.agent.pid)).peakBytes).toBeLessThan(8 * MIB)
  expect(peakBuffers).toBeLessThan(64 * MIB)
})

test('100 MiB of random input reach the command unchanged', async () => {
  const content = randomBytes(100 * MIB)
  const result = await runInGuest(bench.session, { argv: ['sha256sum'] }, { stdin: content })
  expect(result.stdout.toString().slice(0, 64)).toBe(createHash('sha256').update(content).digest('hex'))
  expect((await readMemory(bench.agent.pid)).peakBytes).toBeLessThan(8 * MIB)
})

test('a command nobody reads from waits at its pipe while others go on', async () => {
  const mark = path.join(bench.folder, 'through')
  const unread = await bench.session.exec({ argv: ['sh', '-c', `head -c ${4 * MIB} /dev/zero; : > ${mark}`] })
  for (let i = 0; i < 20; i++) expect(await shell('echo on')).toBe('on\n')
  expect(existsSync(mark)).toBe(false)
  unread.stdout.resume()
  await unread.exited
  expect(existsSync(mark)).toBe(true)
  await unread.close()
})

test('unread standard output does not hold back standard error', async () => {
  const process = await bench.session.exec({ argv: ['sh', '-c', 'head -c 10000000 /dev/zero & head -c 1000000 /dev/zero >&2; wait'] })
  let sizeBytes = 0
  for await (const chunk of process.stderr) {
    sizeBytes += (chunk as Buffer).length
    if (sizeBytes === 1_000_000) break
  }
  expect(sizeBytes).toBe(1_000_000)
  await process.close()
})

test('1,000 short commands, eight at a time, each get their own answer', async () => {
  const limit = pLimit(8)
  const answers = await Promise.all(Array.from({ length: 1_000 }, (_, index) => limit(async () => {
    const result = await runInGuest(bench.session, { argv: ['/bin/echo', String(index)] })
    return result.stdout.toString()
  })))
  expect(answers).toEqual(Array.from({ length: 1_000 }, (_, index) => `${index}\n`))
})

test('arguments and environment longer than a frame arrive in full', async () => {
  const long = 'x'.repeat(100_000)
  const result = await runInGuest(bench.session, { argv: ['sh', '-c', 'printf %s "$1$LONG" | wc -c', 'sh', long], env: { LONG: long } })
  expect(result.stdout.toString().trim()).toBe('200000')
})

test('a command gets its environment over the defaults, its folder, and no descriptor but three', async () => {
  const result = await runInGuest(bench.session, {
    argv: ['sh', '-c', 'echo $A $LANG; pwd; ls /proc/$$/fd > fds; tr "\\n" " " < fds'], env: { A: 'b', LANG: 'C' }, cwd: bench.folder,
  })
  // 10 is where the shell keeps its own output meanwhile.
  expect(result.stdout.toString()).toMatch(new RegExp(`^b C\n${bench.folder}\n0 1 (10 )?2 $`))
})

test.each([
  ['a program that is not there', { argv: ['/no/such'] }, 'exec'],
  ['a folder that is not there', { argv: ['true'], cwd: '/no/such' }, 'working directory'],
  ['a user that is not there', { argv: ['true'], user: 'no-such-user' }, 'user'],
  ['an applet without arguments', { argv: ['@get'] }, 'arguments'],
])('%s is told as the step that failed', async (_what, command, step) => {
  await expect(bench.session.exec(command)).rejects.toMatchObject({ code: 'GUEST_COMMAND_FAILED', details: { step } })
  expect(await shell('echo next')).toBe('next\n')
})

test('a signal reaches every process of the command', async () => {
  const process = await bench.session.exec({ argv: ['sh', '-c', 'sleep 1000.25 & sleep 1000.25 & trap "" TERM; echo; wait; wait; echo both'] })
  await once(process.stdout, 'data')
  const answer = once(process.stdout, 'data') // It may come together with the confirmation of the signal.
  await process.signal(15)
  expect(String(await answer)).toBe('both\n')
  await process.exited
  await expect(process.close()).resolves.toEqual([])
})

test('a terminal has the size asked for, follows a change, and ends at its end of input', async () => {
  const process = await bench.session.exec({
    argv: ['sh', '-c', 'stty -echo; stty size; read go; stty size; cat'], pty: { rows: 20, columns: 70 }, stdin: true,
  })
  let seen = ''
  process.stdout.on('data', (chunk: Buffer) => {
    seen += String(chunk)
  })
  await vi.waitFor(() => expect(seen).toContain('20 70'))
  await process.resize({ rows: 33, columns: 99 })
  process.stdin?.write('go\n')
  await vi.waitFor(() => expect(seen).toContain('33 99'))
  process.stdin?.end()
  await expect(process.exited).resolves.toEqual({ code: 0, signal: null })
  await process.close()
})

test('outside a machine nothing is said to be repaired or frozen', async () => {
  const report = await bench.session.repairIdentity({
    hostname: 'clone', machineId: 'a'.repeat(32), cloneId: 'c', entropy: randomBytes(64),
  })
  expect(Object.values(report)).toEqual([false, false, false, false, false])
  await expect(bench.session.quiesce()).rejects.toMatchObject({ code: 'CHECKPOINT_FAILED' })
})

test('more commands than there are places can be run one after the other, and what they leave goes on', async () => {
  const alive = path.join(bench.folder, 'alive')
  const left = await bench.session.exec({ argv: ['sh', '-c', `(while :; do date +%N > ${alive}; sleep 0.1; done) >/dev/null 2>&1 & echo $!`] })
  const [pid] = await once(left.stdout, 'data') as [Buffer]
  await left.exited
  left.release()
  for (let count = 0; count < bench.session.facts.commandsMax; count++) {
    const process = await bench.session.exec({ argv: ['true'] })
    await process.exited
    process.release()
  }
  const before = await readFile(alive, 'utf8')
  await expect.poll(() => readFile(alive, 'utf8')).not.toBe(before)
  await shell(`kill ${pid.toString()}`)
})
