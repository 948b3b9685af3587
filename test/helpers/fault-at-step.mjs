/**
 * Preloaded into a daemon by tests (`NODE_OPTIONS=--import`): at the n-th thing the daemon does to the disk, to a
 * process or to QEMU, it is killed, or finds the disk full. Nothing of the product knows of it.
 *
 * While the file named by FAULT_PLAN is there (it goes with the fault) it holds `{"at": n, "fault": "kill" | "full"}`; every step is written to
 * `<plan>.log` before it is taken. `at: 0` only counts.
 */
import childProcess from 'node:child_process'
import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import net from 'node:net'

const plan = process.env.FAULT_PLAN
/** What takes room on a disk; only these can fail for lack of it. */
const TAKES_ROOM = new Set(['open', 'mkdir', 'link', 'rename', 'writeFile', 'copyFile', 'truncate', 'write', 'sync'])
let count = 0

function step(what, target) {
  let text
  try {
    text = fs.readFileSync(plan, 'utf8')
  } catch {
    count = 0
    return
  }
  const { at, fault } = JSON.parse(text)
  if (fault === 'full' && !TAKES_ROOM.has(what)) return
  count += 1
  fs.appendFileSync(`${plan}.log`, `${count} ${what} ${target}\n`)
  if (count !== at) return
  fs.rmSync(plan) // Once: not for the next daemon, too.
  if (fault === 'kill') process.kill(process.pid, 'SIGKILL')
  throw Object.assign(new Error(`ENOSPC: no space left on device, ${what}`), { code: 'ENOSPC' })
}

function wrap(owner, name, isStep = () => true, targetOf = (first) => (typeof first === 'string' ? first : '')) {
  const original = owner[name]
  owner[name] = function wrapped(...args) {
    if (!isStep(args)) return original.apply(this, args)
    try {
      step(name, targetOf(args[0], this))
    } catch (error) {
      return Promise.reject(error)
    }
    return original.apply(this, args)
  }
}

if (plan !== undefined && process.argv[1]?.endsWith('daemon/main.js')) {
  const ofTheHome = (file) => typeof file === 'string' && !file.startsWith('/proc')
  wrap(fs.promises, 'open', ([file, flags]) => ofTheHome(file) && flags !== undefined && flags !== 'r')
  for (const name of ['mkdir', 'link', 'rename', 'writeFile', 'rm', 'chmod', 'copyFile']) wrap(fs.promises, name, ([file]) => ofTheHome(file))
  const handle = await fs.promises.open('/dev/null')
  const handles = Object.getPrototypeOf(handle)
  await handle.close()
  for (const name of ['write', 'writeFile', 'truncate', 'sync']) wrap(handles, name)
  const { write } = net.Socket.prototype
  net.Socket.prototype.write = function wrapped(chunk, ...rest) {
    if (typeof chunk === 'string' && chunk.startsWith('{"execute"')) step('qmp', JSON.parse(chunk).execute)
    return write.call(this, chunk, ...rest)
  }
  const { spawn } = childProcess
  childProcess.spawn = (program, ...rest) => {
    step('spawn', program)
    return spawn(program, ...rest)
  }
  const { kill } = process
  process.kill = (pid, signal) => {
    if (signal !== 'SIGKILL' || pid !== process.pid) step('kill', signal)
    return kill.call(process, pid, signal)
  }
  syncBuiltinESMExports()
}
