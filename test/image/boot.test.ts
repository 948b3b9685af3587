/**
 * Images booted under emulation: those that the set-up built, whose tools run, and an imported one that has nothing.
 */
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { Duplex } from 'node:stream'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { readSettings } from '../../src/config/environment.js'
import { openGuestSession } from '../../src/guest/agent-session.js'
import { runInGuest } from '../../src/guest/run-in-guest.js'
import type { BootImage } from '../../src/hypervisor/driver.js'
import { importImage } from '../../src/image/import/import-image.js'
import { resolveImage } from '../../src/image/store.js'
import { runProgram, spawnProgram } from '../../src/util/spawn.js'
import { archiveOf, dockerFiles, tar } from '../helpers/container-image.js'

let folder: string
const stops: (() => Promise<unknown>)[] = []

beforeEach(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'kosa8-boot-'))
})

afterEach(async () => {
  for (const stop of stops.splice(0)) await stop()
  await rm(folder, { recursive: true, force: true })
})

/** A busy host disturbs the guest's measuring of its clock; the frequency is the host's. */
async function clockArgument(): Promise<string> {
  const mhz = /^cpu MHz\s*: ([\d.]+)$/m.exec(await readFile('/proc/cpuinfo', 'utf8'))?.[1]
  return mhz === undefined ? '' : ` tsc_early_khz=${Math.round(Number(mhz) * 1000)}`
}

/** Boots an image on an overlay of its own; the agent's port is the program's standard input and output. */
async function boot(image: BootImage): Promise<Duplex> {
  const overlay = path.join(folder, 'overlay.qcow2')
  await runProgram('qemu-img', ['create', '-q', '-f', 'qcow2', '-b', image.rootDisk, '-F', 'raw', overlay])
  const machine = spawnProgram('qemu-system-x86_64', [
    '-nodefaults', '-no-user-config', '-display', 'none', '-M', 'microvm,acpi=on,rtc=on', '-m', '512M', '-no-reboot',
    '-accel', 'tcg,thread=multi,tb-size=64', '-cpu', 'max', '-kernel', image.kernel, '-initrd', image.initrd,
    '-append', `console=ttyS0 quiet panic=-1${await clockArgument()}`,
    '-drive', `if=none,id=disk,file=${overlay},format=qcow2,cache=unsafe`, '-device', 'virtio-blk-device,drive=disk',
    '-device', 'virtio-serial-device', '-chardev', 'stdio,id=agent,signal=off',
    '-device', 'virtserialport,chardev=agent,name=org.kosa8.agent', '-serial', `file:${path.join(folder, 'console')}`,
  ], { stdio: ['pipe', 'pipe', 'inherit'] })
  const ended = new Promise((resolve) => machine.once('close', resolve))
  stops.push(() => {
    machine.kill('SIGKILL')
    return ended
  })
  machine.stdin!.on('error', () => undefined)
  return Duplex.from({ readable: machine.stdout!, writable: machine.stdin! })
}

test.each([
  { name: 'base', script: 'git --version && python3 -c "import json, ssl; print(1)" && git config user.name && hostname' },
  { name: 'node', script: 'npm --version && node -e "console.log(6 * 7)"' },
])('the image $name boots to our agent and runs its tools', async ({ name, script }) => {
  const image = await resolveImage(name, readSettings().imagesDirectory)
  const session = await openGuestSession(await boot(image.boot), { helloTimeoutMs: 100_000 })
  const { exit, stdout, stderr } = await runInGuest(session, { argv: ['sh', '-c', script] })
  session.end()
  expect(stderr.toString()).toBe('')
  expect(exit.code).toBe(0)
  expect(stdout.toString()).toMatch(name === 'base' ? /^git version 2.*\n1\nkosa8\n/ : /^11\..*\n42\n$/)
})

const HELLO = `#include <stdio.h>
#include <stdlib.h>
int main(void) { printf("%s from %s\\n", getenv("GREETING"), getenv("PATH")); return 0; }`

test('an imported image of one program, without shell, libc or folders, boots, has an identity and its environment', async () => {
  const images = path.join(folder, 'images')
  await mkdir(images)
  await symlink(path.join(readSettings().imagesDirectory, 'base'), path.join(images, 'base'))
  await writeFile(path.join(folder, 'hello.c'), HELLO)
  await runProgram('cc', ['-static', '-O2', '-s', '-o', path.join(folder, 'hello'), path.join(folder, 'hello.c')])
  const layer = tar([{ name: 'opt/hello', content: await readFile(path.join(folder, 'hello')), mode: 0o755 }])
  const files = dockerFiles([layer], { reference: 'hello:1', config: { Env: ['PATH=/opt', 'GREETING=hello'] } })
  await writeFile(path.join(folder, 'hello.tar'), archiveOf(files))
  await importImage(path.join(folder, 'hello.tar'), { imagesDirectory: images, diskMib: 80 })

  const session = await openGuestSession(await boot((await resolveImage('hello-1', images)).boot), { helloTimeoutMs: 100_000 })
  const report = await session.repairIdentity({ hostname: 'box', machineId: '0'.repeat(32), cloneId: 'clone', entropy: Buffer.alloc(64, 7) })
  expect(Object.values(report).filter((done) => done !== true)).toEqual([])
  expect((await runInGuest(session, { argv: ['hello'] })).stdout.toString()).toBe('hello from /opt\n')
  expect((await runInGuest(session, { argv: ['/opt/hello'], env: { GREETING: 'good day' } })).stdout.toString()).toBe('good day from /opt\n')
  session.end()
})
