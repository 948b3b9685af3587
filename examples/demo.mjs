#!/usr/bin/env node
/**
 * The demo: the main job on the sample repository, from a copy of it to the comparison.
 *
 * Owns: a fresh folder with the copy, its one commit, and ending the daemon if it was this demo that caused it.
 * Everything else is the command `kosa8 fork` as a user would call it. Called by `npm run demo`, after the set-up.
 * Exit status: the one of `kosa8 fork`; 1 when the demo itself cannot go on.
 */
import { spawn } from 'node:child_process'
import { constants, tmpdir } from 'node:os'
import { cp, mkdtemp, realpath } from 'node:fs/promises'
import { existsSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

const ROOT = path.dirname(path.dirname(fileURLToPath(import.meta.url)))
const CLI = path.join(ROOT, 'dist/src/cli/main.js')
const SAMPLE = path.join(ROOT, 'examples/cart')
const APPROACHES = 'mend,hasty,cheat'
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP']
/** Status of `kosa8 daemon status` when none runs. */
const NOT_RUNNING = 3
/** One Ctrl-C can arrive twice, from the terminal and from npm; a person's second one comes later. Milliseconds. */
const SAME_SIGNAL_MS = 400

/** The environment without git's variables: the copy's git must depend on nothing of the user's. */
const cleanEnvironment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('GIT_')))
const gitEnvironment = {
  ...cleanEnvironment,
  GIT_CONFIG_GLOBAL: '/dev/null', GIT_CONFIG_SYSTEM: '/dev/null', GIT_CONFIG_NOSYSTEM: '1',
  GIT_AUTHOR_NAME: 'kosa8 demo', GIT_AUTHOR_EMAIL: 'demo@kosa8.invalid',
  GIT_COMMITTER_NAME: 'kosa8 demo', GIT_COMMITTER_EMAIL: 'demo@kosa8.invalid',
}

let child = null
let stoppedBy = null

/** Runs a program to its end; a signal that ended it becomes 128 + its number, as shells have it. */
async function run(program, args, { cwd = ROOT, env = process.env, captures = false, isOwnSession = false } = {}) {
  const running = spawn(program, args, {
    cwd, env, detached: isOwnSession, stdio: ['ignore', captures ? 'pipe' : 'inherit', 'inherit'],
  })
  let stdout = ''
  running.stdout?.setEncoding('utf8').on('data', (text) => { stdout += text })
  if (isOwnSession) child = running
  const status = await new Promise((resolve, reject) => {
    running.once('error', reject)
    running.once('close', (code, signal) => resolve(code ?? 128 + constants.signals[signal]))
  })
  if (isOwnSession) child = null
  return { status, stdout }
}

/** Runs `kosa8` and reads its JSON answer. */
async function ask(...args) {
  const { status, stdout } = await run(process.execPath, [CLI, ...args, '--json'], { captures: true })
  return { status, answer: stdout.trim() === '' ? null : JSON.parse(stdout) }
}

/** Passes stop signals on, each once. The command is in a session of its own, so the terminal does not send them too. */
function passSignals() {
  let lastAtMs = -Infinity
  for (const signal of SIGNALS) {
    process.on(signal, () => {
      const nowMs = performance.now()
      if (nowMs - lastAtMs < SAME_SIGNAL_MS) return
      lastAtMs = nowMs
      stoppedBy ??= signal
      child?.kill(signal)
    })
  }
  process.on('SIGWINCH', () => child?.kill('SIGWINCH'))
}

/** A copy of the sample with one commit. */
async function makeRepository() {
  const folder = await realpath(await mkdtemp(path.join(tmpdir(), 'kosa8-demo-')))
  await cp(SAMPLE, folder, { recursive: true })
  for (const args of [
    ['init', '-q', '-b', 'main', '--template='],
    ['add', '--all'],
    ['commit', '-q', '-m', 'A cart with one fault'],
  ]) {
    const { status } = await run('git', args, { cwd: folder, env: gitEnvironment })
    if (status !== 0) throw new Error(`\`git ${args[0]}\` ended with status ${status} in ${folder}`)
  }
  return folder
}

/** The result document of this repository's run; null when it never came to one. */
async function findResult(repository) {
  const { status, answer: runs } = await ask('runs', 'ls')
  const run = status === 0 ? runs.find((each) => each.repository === repository) : undefined
  if (run === undefined) return null
  const { answer } = await ask('runs', 'show', run.id)
  return answer?.dir === undefined ? null : answer
}

/** Ends the daemon this demo caused, unless somebody has given it work meanwhile; then it ends by itself, later. */
async function stopDaemon() {
  const { status, answer } = await ask('daemon', 'status')
  if (status === NOT_RUNNING) return
  if (answer?.running?.runs > 0 || answer?.running?.sandboxes > 0) {
    console.log('The daemon still has something to look after; it ends by itself once that is done.')
    return
  }
  await ask('daemon', 'stop')
}

function tellNextSteps(repository, run) {
  console.log(`
The run stays in ${run.dir}:
report.md, run.json, and a folder per trial with its patch and log.
The repository stays in ${repository}, unchanged but for the results under refs/kosa8/.`)
  if (run.winner === null) return
  console.log(`
Try next:
  cd ${repository}
  alias kosa8='node ${CLI}'
  kosa8 diff ${run.id} mend
  kosa8 diff ${run.id} mend hasty
  kosa8 apply ${run.id} mend --branch mend
  kosa8 report ${run.id} --format html > report.html
`)
}

async function main() {
  if (!existsSync(CLI)) throw new Error('kosa8 is not built yet: run `npm run demo`, which does the set-up first')
  const before = await ask('daemon', 'status')
  const repository = await makeRepository()
  console.log(`\nA copy of examples/cart, with one commit: ${repository}`)
  console.log(`$ kosa8 fork --approaches ${APPROACHES}\n`)
  try {
    if (stoppedBy !== null) return 128 + constants.signals[stoppedBy]
    const { status } = await run(process.execPath, [CLI, 'fork', '--approaches', APPROACHES], { cwd: repository, isOwnSession: true })
    const result = await findResult(repository)
    if (result !== null) tellNextSteps(repository, result)
    return status
  } finally {
    if (before.status === NOT_RUNNING) await stopDaemon()
  }
}

passSignals()
try {
  process.exitCode = await main()
} catch (error) {
  console.error(`demo: ${error.message}`)
  process.exitCode = 1
}
