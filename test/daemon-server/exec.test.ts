import { createHash } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { Kosa8Client } from '../../src/sdk/client.js'
import { CREDIT_BYTES } from '../../src/protocol/exec-frames.js'
import { serveHome } from './serve.js'

async function openSandbox() {
  const { home, services } = await serveHome()
  const client = new Kosa8Client({ home, startsDaemon: false })
  await client.createSandbox({ name: 'db' })
  return { sandbox: client.sandbox('db'), processes: services.sandboxes.processes, services }
}

describe('a command in a sandbox', () => {
  it('gives back both outputs and its status', async () => {
    const { sandbox } = await openSandbox()
    expect(await sandbox.exec(['print', 'out', 'err', '7'])).toEqual({ exitCode: 7, signal: null, stdout: 'out', stderr: 'err' })
  })

  it('gets its standard input unchanged, and copies it back', async () => {
    const { sandbox } = await openSandbox()
    const process = await sandbox.spawn({ argv: ['cat'], stdin: true })
    const sent = Buffer.from(Array.from({ length: 3_000_000 }, (_, index) => (index * 13) % 256))
    process.stdin?.end(sent)
    const hash = createHash('sha256')
    for await (const chunk of process.stdout) hash.update(chunk as Buffer)
    expect(hash.digest('hex')).toBe(createHash('sha256').update(sent).digest('hex'))
    expect(await process.exited).toEqual({ code: 0, signal: null })
  })

  it('is held up while nobody reads its output', async () => {
    const { sandbox, processes } = await openSandbox()
    const process = await sandbox.spawn({ argv: ['flood', String(64 * 1024 * 1024)] })
    const fake = processes[0]
    await expect.poll(() => fake?.producedBytes).toBeGreaterThan(CREDIT_BYTES)
    expect(fake?.producedBytes).toBeLessThan(CREDIT_BYTES + 1024 * 1024)
    let readBytes = 0
    for await (const chunk of process.stdout) readBytes += (chunk as Buffer).length
    expect(readBytes).toBe(64 * 1024 * 1024)
  })

  it('is killed when its caller goes', async () => {
    const { sandbox, processes } = await openSandbox()
    const process = await sandbox.spawn({ argv: ['wait'] })
    process.close()
    await expect.poll(() => processes[0]?.isClosed).toBe(true)
    await expect(process.exited).rejects.toMatchObject({ code: 'DAEMON_UNREACHABLE' })
  })

  it('gets signals and the size of the terminal', async () => {
    const { sandbox, processes } = await openSandbox()
    const process = await sandbox.spawn({ argv: ['wait'], pty: { rows: 24, columns: 80 } })
    process.resize({ rows: 50, columns: 132 })
    process.signal(15)
    process.stdout.resume()
    process.stderr.resume()
    expect(await process.exited).toEqual({ code: null, signal: 15 })
    expect(processes[0]?.sizes).toEqual([{ rows: 50, columns: 132 }])
  })

  it.each(['daemon', 'chatter'])('ends although it left a %s holding its output, which goes on running', async (verb) => {
    const { sandbox, processes } = await openSandbox()
    const result = await sandbox.exec([verb])
    expect(result).toMatchObject({ exitCode: 0, signal: null })
    expect(result.stdout).toMatch(/^started/)
    expect(processes[0]).toMatchObject({ isClosed: false, isReleased: true })
    await processes[0]?.close()
  })

  it('that cannot be started fails with the reason', async () => {
    const { sandbox } = await openSandbox()
    await expect(sandbox.exec(['missing'])).rejects.toMatchObject({ code: 'GUEST_COMMAND_FAILED', hint: 'check the name' })
    await expect(sandbox.exec([])).rejects.toMatchObject({ code: 'USAGE' })
  })

  it('in a sandbox that is not there fails with SANDBOX_UNKNOWN', async () => {
    const { sandbox, services } = await openSandbox()
    services.sandboxes.all.clear()
    await expect(sandbox.exec(['print'])).rejects.toMatchObject({ code: 'SANDBOX_UNKNOWN' })
  })

  it('that prints too much for one answer is stopped', async () => {
    const { sandbox, processes } = await openSandbox()
    await expect(sandbox.exec(['flood', String(40 * 1024 * 1024)])).rejects.toMatchObject({ code: 'LIMIT_EXCEEDED' })
    await expect.poll(() => processes[0]?.isClosed).toBe(true)
  })
})
