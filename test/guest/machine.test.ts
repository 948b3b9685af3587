/** The agent as init of a real machine: what a socket pair cannot show. */
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { openGuestSession, type AgentSession } from '../../src/guest/agent-session.js'
import { runInGuest } from '../../src/guest/run-in-guest.js'
import type { GuestIdentity } from '../../src/guest/session.js'
import type { Driver, Machine, MachineSnapshot } from '../../src/hypervisor/driver.js'
import { createMachineId } from '../../src/model/ids.js'
import { makeTcgDriver } from '../conformance/qemu-subject.js'
import { buildAgentImage } from './agent-image.js'

const SESSION = { helloTimeoutMs: 150_000 }
let folder: string
let driver: Driver
const machines: Machine[] = []
let source: Machine
let session: AgentSession

const place = (): { id: ReturnType<typeof createMachineId>; directory: string; layersDirectory: string } => {
  const id = createMachineId()
  return { id, directory: path.join(folder, id), layersDirectory: path.join(folder, 'layers') }
}

const keep = (machine: Machine): Machine => {
  machines.push(machine)
  return machine
}

/** More than the image's disk has. */
const DISK_MIB = 10 * 1024
const PROCESSES_MAX = 120

const shell = async (script: string, on: AgentSession = session): Promise<string> => {
  const { stdout, stderr } = await runInGuest(on, { argv: ['sh', '-c', script] })
  return stdout.toString() + stderr.toString()
}

const identityOf = (name: string): GuestIdentity => ({
  hostname: name, machineId: randomBytes(16).toString('hex'), cloneId: `id-of-${name}`, entropy: randomBytes(64),
})

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'kosa8-guest-'))
  await mkdir(path.join(folder, 'layers'))
  driver = makeTcgDriver(folder)
  const image = await buildAgentImage(folder)
  source = keep(await driver.boot({ ...place(), shape: { memoryMib: 192, cpus: 1, network: 'user', diskMib: DISK_MIB, processesMax: PROCESSES_MAX }, image }))
  session = await openGuestSession(await source.openChannel(), SESSION)
})

afterAll(async () => {
  await Promise.all(machines.map((machine) => machine.destroy()))
  await rm(folder, { recursive: true, force: true })
})

test('the agent is init of the image\'s root, with cgroups, terminals, shared memory and network', async () => {
  expect(session.facts).toMatchObject({ isInit: true, hasCgroups: true, isFrozen: false })
  const seen = await shell(`cat /proc/1/comm; stat -f -c %T / /run /dev/shm /sys/fs/cgroup /dev/pts; hostname
    ls -d /proc/self/fd/0 /dev/fd/0; cut -f 1,2,3 /proc/net/route | grep -P '\\t00000000\\t0202'; ls /init /modules 2>&1 | wc -l`)
  expect(seen.split('\n')).toEqual([
    'init', 'ext2/ext3', 'tmpfs', 'tmpfs', 'cgroup2fs', 'devpts', 'sandbox', '/dev/fd/0', '/proc/self/fd/0',
    'eth0\t00000000\t0202000A', '2', '',
  ])
})

test('closing a command ends daemons in sessions of their own, and its group is gone', async () => {
  const result = await runInGuest(session, {
    argv: ['sh', '-c', 'setsid sh -c "setsid sleep 1234 & sleep 1234" & sleep 0.5; cut -d: -f3 /proc/self/cgroup'],
  })
  expect(result.leftovers.map(({ name }) => name).sort()).toEqual(['sh', 'sleep', 'sleep'])
  const group = result.stdout.toString().trim()
  expect(await shell(`cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep 123[4]'; ls -d /sys/fs/cgroup${group} 2>&1`))
    .toBe(`0\nls: cannot access '/sys/fs/cgroup${group}': No such file or directory\n`)
})

test('the root file system fills a disk larger than the image, and what lies beyond the image holds data', async () => {
  const seen = await shell(`df --output=size -m / | tail -1; fallocate -l 8800M /large && printf end | dd of=/large bs=1 seek=9000000000 conv=notrunc status=none
    tail -c +9000000001 /large | head -c 3; rm /large`)
  const [sizeMib, end] = seen.split('\n')
  expect(Number(sizeMib)).toBeGreaterThan(DISK_MIB * 0.97)
  expect(end).toBe('end')
})

test('beside a command that starts processes without end another can be run, and closing it ends them all', async () => {
  const bomb = `import os, time
while True:
  try: os.fork()
  except BlockingIOError: print(flush=True); time.sleep(2)`
  const process = await session.exec({ argv: ['python3', '-c', bomb] })
  await once(process.stdout, 'data')
  process.stdout.resume()
  const [ofAll, ofOne, count] = (await shell('cat /sys/fs/cgroup/kosa8/pids.max; cd /sys/fs/cgroup/kosa8; sort -n */pids.max | head -1; sort -n */pids.current | tail -1')).split('\n')
  expect([ofAll, ofOne, count]).toEqual(['120', '105', '105'])
  expect(await process.close()).toHaveLength(64)
  expect(await shell('cat /proc/[0-9]*/comm | grep -c python3')).toBe('0\n')
})

test('a command runs as the user asked for, with that user\'s groups and home', async () => {
  const result = await runInGuest(session, { argv: ['sh', '-c', 'id -u; id -G; echo $HOME $USER'], user: 'daemon' })
  expect(result.stdout.toString()).toBe('1\n1\n/usr/sbin daemon\n')
})

test('frozen processes stand still, can be closed all the same, and the others go on after the thaw', async () => {
  const counting = (name: string): string[] => ['sh', '-c', `while :; do echo > /tmp/${name}; echo; done`]
  const [one, two] = await Promise.all([session.exec({ argv: counting('one') }), session.exec({ argv: counting('two') })])
  await Promise.all([once(one.stdout, 'data'), once(two.stdout, 'data')])
  await session.quiesce()
  expect(await one.close()).toEqual([expect.objectContaining({ name: 'sh' })])
  await session.thaw()
  await once(two.stdout, 'data')
  await two.close()
})

test('when the host hangs up, a command goes on and its output is drained', async () => {
  await session.exec({ argv: ['sh', '-c', 'head -c 5000000 /dev/zero; echo through > /tmp/drained'] })
  session.end()
  session = await openGuestSession(await source.openChannel(), SESSION)
  expect(await shell('until [ -s /tmp/drained ]; do sleep 0.1; done; cat /tmp/drained')).toBe('through\n')
})

test('clones of a machine in full flow begin frozen, each becomes itself, and the flow goes on in all', async () => {
  const flow = await session.exec({
    argv: ['sh', '-c', 'while :; do i=$((i+1)); echo $i > /tmp/count; head -c 70000 /dev/zero; sleep 0.1; done'],
  })
  await once(flow.stdout, 'readable')
  await session.quiesce()
  const directory = path.join(folder, 'snapshot')
  await mkdir(directory)
  const { snapshot } = await source.snapshot(directory)
  await session.thaw()
  flow.stdout.resume()
  const clones = await Promise.all(['clone-a', 'clone-b'].map((name) => becomeClone(snapshot, name)))
  expect(clones[0]).toMatchObject({ names: 'clone-a clone-a id-of-clone-a', goesOn: true })
  expect(clones[1]).toMatchObject({ names: 'clone-b clone-b id-of-clone-b', goesOn: true })
  expect(clones[0]?.random).not.toBe(clones[1]?.random)
  await flow.close()
  expect(await shell('hostname')).toBe('sandbox\n')
})

/** Restores a clone, checks that it is frozen, repairs it and asks who it is. */
async function becomeClone(snapshot: MachineSnapshot, name: string): Promise<{ names: string; random: string | undefined; goesOn: boolean }> {
  const machine = keep(await driver.restore({ ...place(), snapshot }))
  await machine.resume()
  const clone = await openGuestSession(await machine.openChannel(), SESSION)
  expect(clone.facts.isFrozen).toBe(true)
  const identity = identityOf(name)
  expect(Object.values(await clone.repairIdentity(identity))).toEqual([true, true, true, true, true])
  // Invariant 8: the limits are the parent's.
  expect(await shell('cat /sys/fs/cgroup/kosa8/pids.max; [ $(df --output=size -m / | tail -1) -gt 9900 ] && echo large', clone)).toBe(`${PROCESSES_MAX}\nlarge\n`)
  const [random, names = '', machineId, time, goesOn] = (await shell(`head -c 16 /dev/urandom | od -An -tx1
    echo $(hostname; cat /etc/hostname /run/kosa8/clone-id); cat /etc/machine-id; date +%s
    a=$(cat /tmp/count); while [ "$(cat /tmp/count)" = "$a" ]; do sleep 0.05; done; echo on`, clone)).split('\n')
  expect(machineId).toBe(identity.machineId)
  expect(Math.abs(Number(time) - Date.now() / 1000)).toBeLessThan(60)
  return { names, random, goesOn: goesOn === 'on' }
}

test('a standstill costs the clock nothing, and a clock set apart from the host\'s stays so', async () => {
  const readClock = async (): Promise<number> => Number(await shell('date +%s'))
  const realTimeS = await readClock()
  await shell('date -s @1000000000')
  await session.quiesce()
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 3_600_000 })
  await session.thaw().finally(() => vi.useRealTimers())
  const later = await readClock()
  await shell(`date -s @${realTimeS}`)
  expect(later).toBeGreaterThanOrEqual(1_000_003_600)
  expect(later).toBeLessThan(1_000_003_600 + 600)
})

test('a repaired clock is not moved again when the machine is found by another host process', async () => {
  await shell('date -s @4000000000')
  await session.quiesce()
  await session.repairIdentity(identityOf('found'))
  await session.thaw()
  expect(Number(await shell('date +%s'))).toBeLessThan(Date.now() / 1000 + 600)
})

test('a clone\'s connections to the outside are reset at once, those within it and the source\'s own go on', async () => {
  const held: Socket[] = []
  const server = createServer((socket) => { held.push(socket.on('error', () => undefined)) }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const program = `import socket, sys, threading
inner = socket.create_server(('127.0.0.1', 4000)); near = socket.create_connection(('127.0.0.1', 4000)); far_end, _ = inner.accept()
far = socket.create_connection(('10.0.2.2', ${(server.address() as AddressInfo).port}))
print('open', flush=True)
try: said = far.recv(100).decode()
except OSError as error: said = error.strerror
far_end.send(b'near'); open('/tmp/said', 'w').write(said + ', ' + near.recv(100).decode())`
  const holder = await session.exec({ argv: ['python3', '-c', program] })
  await once(holder.stdout, 'data')
  await session.quiesce()
  const directory = path.join(folder, 'connected')
  await mkdir(directory)
  const { snapshot } = await source.snapshot(directory)
  await session.thaw()
  const machine = keep(await driver.restore({ ...place(), snapshot }))
  await machine.resume()
  const clone = await openGuestSession(await machine.openChannel(), SESSION)
  await clone.repairIdentity(identityOf('clone-c'))
  const said = 'until [ -s /tmp/said ]; do sleep 0.1; done; cat /tmp/said'
  expect(await shell(said, clone)).toBe('Software caused connection abort, near')
  held[0]?.write('far')
  expect(await shell(said)).toBe('far, near')
  for (const socket of held) socket.destroy()
  server.close()
  await holder.close()
})

test('the owner\'s hook runs with the clone\'s id before anything else, and a failing repair leaves the machine frozen', async () => {
  await session.writeFile('/etc/kosa8/on-clone', '#!/bin/sh\necho "$CLONE_ID" > /tmp/hook\nsetsid sleep 4321 &\n', { mode: 0o755 })
  await session.quiesce()
  await expect(session.repairIdentity({ ...identityOf('x'), machineId: 'not an id' })).resolves.toMatchObject({ machineIdSet: false })
  session.end()
  session = await openGuestSession(await source.openChannel(), SESSION)
  expect(session.facts.isFrozen).toBe(true)
  await session.repairIdentity(identityOf('hooked'))
  expect(await shell(`cat /tmp/hook; hostname; cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep 432[1]'`))
    .toBe('id-of-hooked\nhooked\n0\n')
})
