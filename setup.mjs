#!/usr/bin/env node
/**
 * Set-up: everything kosa8 needs on a fresh machine, in steps that are skipped where they are done.
 *
 * Owns: the Node version, npm's packages, the system's packages, the build, the images. Plain Node
 * without dependencies, because it runs before there are any. Called by `npm test`, `npm run demo`
 * and `npm run setup`, and by hand where kosa8 is a package of another project. Exit status: 0 done, 1 a step failed, 2 the user has to do something, 130 interrupted.
 */
/* global AbortController, setInterval, clearInterval */
import { spawn } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { STAMP, hashSources } from './stamp.mjs'

const ROOT = path.dirname(fileURLToPath(import.meta.url))
/** As a package of somebody's project it comes with its own packages, and built. */
const IS_CHECKOUT = existsSync(path.join(ROOT, 'package-lock.json'))
const IMAGES = ['base', 'node']
/** Lines of a failed program's output that are shown. */
const TAIL_LINES = 12

const HELP = `Usage: node setup.mjs [--no-images] [--help]

Sets up what kosa8 needs on a Debian 12 or Ubuntu machine: npm's packages, the system's
packages (through apt, as root or with sudo), the build and the images ${IMAGES.join(' and ')}.
Steps that are done already are skipped.

  --no-images   do not build the images
  --help        show this text

Example: npm run setup`

/** Programs we call, and the Debian packages they come in. */
const PROGRAMS = [
  { program: 'qemu-system-x86_64', packages: ['qemu-system-x86'] },
  { program: 'qemu-img', packages: ['qemu-utils'] },
  { program: 'redis-server', packages: ['redis-server'] },
  { program: 'mmdebstrap', packages: ['mmdebstrap'] },
  { program: 'mke2fs', packages: ['e2fsprogs'] },
  { program: 'cc', packages: ['gcc', 'libc6-dev'] },
  { program: 'git', packages: ['git', 'ca-certificates'] },
  { program: 'zstd', packages: ['zstd'] },
  { program: 'cpio', packages: ['cpio'] },
  { program: 'newuidmap', packages: ['uidmap'], onlyWithoutRoot: true },
  { program: 'fakeroot', packages: ['fakeroot'], onlyWithoutRoot: true },
]
/** Files that count like programs: the static C library, and the keys Debian's releases are signed with. */
const FILES = [
  { file: '/usr/lib/x86_64-linux-gnu/libc.a', packages: ['libc6-dev'] },
  { file: '/usr/share/keyrings/debian-archive-keyring.gpg', packages: ['debian-archive-keyring'] },
]
const PATH_FOLDERS = [...(process.env.PATH ?? '').split(':'), '/usr/local/sbin', '/usr/sbin', '/sbin']

/** A failure the user can read: what happened, and what to do. */
class SetupError extends Error {
  constructor(message, hint, { output = [], exitStatus = 1 } = {}) {
    super(message)
    this.hint = hint
    this.output = output
    this.exitStatus = exitStatus
  }
}

const cancellation = new AbortController()
const startedAt = performance.now()
const isRoot = process.getuid() === 0

/** Prints steps: on a terminal the line of a step is redrawn while it goes on. */
const screen = {
  isTerminal: process.stdout.isTTY === true,
  draw(text) {
    if (!this.isTerminal) return
    process.stdout.write(`\r\x1b[K${text.replace(/\p{Cc}/gu, ' ').slice(0, (process.stdout.columns ?? 80) - 1)}`)
  },
  print(text) {
    process.stdout.write(`${this.isTerminal ? '\r\x1b[K' : ''}${text}\n`)
  },
}

function seconds(sinceMs) {
  return `${((performance.now() - sinceMs) / 1000).toFixed(1)} s`
}

/** Runs one step; without a terminal its beginning is printed too, so that a slow one is seen. */
async function runStep(title, work) {
  const began = performance.now()
  let lastLine = ''
  const redraw = () => screen.draw(`  … ${title} ${seconds(began)}${lastLine === '' ? '' : `  ${lastLine}`}`)
  const tell = (line) => {
    lastLine = line.trim()
    redraw()
  }
  if (!screen.isTerminal) screen.print(`  … ${title}`)
  const timer = screen.isTerminal ? setInterval(redraw, 500) : undefined
  try {
    const note = await work(tell)
    cancellation.signal.throwIfAborted()
    screen.print(`  ✓ ${title}${note === undefined ? '' : `: ${note}`} (${seconds(began)})`)
  } finally {
    clearInterval(timer)
  }
}

function skipStep(title, why) {
  screen.print(`  ✓ ${title}: ${why}`)
}

/** Runs a program without a shell, reports its lines, and fails with the last of them. */
async function runProgram(program, args, { tell = () => undefined, env = process.env, stdin = 'ignore', hint } = {}) {
  const tail = []
  const follow = (stream) => {
    let rest = ''
    stream.setEncoding('utf8').on('data', (text) => {
      const lines = (rest + text).split(/[\r\n]+/)
      rest = lines.pop()
      for (const line of lines.filter((text) => text.trim() !== '')) {
        tail.push(line)
        if (tail.length > TAIL_LINES) tail.shift()
        tell(line)
      }
    })
  }
  const child = spawn(program, args, { cwd: ROOT, env, stdio: [stdin, 'pipe', 'pipe'] })
  follow(child.stdout)
  follow(child.stderr)
  const stop = () => child.kill('SIGTERM')
  cancellation.signal.addEventListener('abort', stop)
  try {
    const status = await new Promise((resolve, reject) => {
      child.once('error', reject)
      child.once('close', (code, signal) => resolve(code ?? signal))
    })
    cancellation.signal.throwIfAborted()
    if (status === 0) return
    const title = [program, ...args.slice(0, 2)].join(' ')
    throw new SetupError(`\`${title}\` ended with status ${status}`, hint ?? 'mend the cause shown above and run this again', { output: tail })
  } finally {
    cancellation.signal.removeEventListener('abort', stop)
  }
}

function checkNode() {
  const required = /(\d+)\.(\d+)/.exec(JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8')).engines.node)
  const [major, minor] = process.versions.node.split('.').map(Number)
  const isEnough = major > Number(required[1]) || (major === Number(required[1]) && minor >= Number(required[2]))
  if (isEnough) return
  throw new SetupError(`kosa8 needs Node.js ${required[0]} or newer, this is ${process.versions.node}`,
    'install a newer Node.js and run this again', { exitStatus: 2 })
}

// npm's packages

/** npm writes the lock it installed into node_modules; every package in it must stand as in ours. */
function hasMatchingPackages() {
  try {
    const wanted = JSON.parse(readFileSync(path.join(ROOT, 'package-lock.json'), 'utf8')).packages
    const installed = JSON.parse(readFileSync(path.join(ROOT, 'node_modules/.package-lock.json'), 'utf8')).packages
    return Object.entries(wanted).every(([name, entry]) => name === ''
      || installed[name]?.version === entry.version || (entry.optional === true && installed[name] === undefined))
  } catch {
    return false
  }
}

async function installNpmPackages() {
  if (hasMatchingPackages()) return skipStep("npm's packages", 'installed')
  await runStep("install npm's packages", (tell) => runProgram('npm', ['ci', '--no-audit', '--no-fund'], {
    tell, hint: 'check the network and the registry npm is set up for, then run this again',
  }))
}

// The system's packages

function isInstalled({ program, file }) {
  if (file !== undefined) return existsSync(file)
  return PATH_FOLDERS.some((folder) => folder !== '' && existsSync(path.join(folder, program)))
}

function missingPackages() {
  const missing = [...PROGRAMS, ...FILES]
    .filter((entry) => (!entry.onlyWithoutRoot || !isRoot) && !isInstalled(entry))
    .flatMap((entry) => entry.packages)
  return [...new Set(missing)].sort()
}

async function succeeds(program, args, options) {
  return runProgram(program, args, options).then(() => true, () => false)
}

/** How to become root: not at all, by sudo without a question, or by sudo asking on the terminal. */
async function findRootCommand() {
  if (isRoot) return []
  if (await succeeds('sudo', ['-n', 'true'])) return ['sudo', '-n']
  return process.stdin.isTTY === true && isInstalled({ program: 'sudo' }) ? ['sudo'] : null
}

/**
 * The part that runs as root. Services of the packages must not start: policy-rc.d says so while
 * they are installed, and what was there before is put back whatever happens. On a machine with
 * systemd a Redis service that was not there before is disabled.
 */
const INSTALL_SCRIPT = `set -eu
export DEBIAN_FRONTEND=noninteractive
policy=/usr/sbin/policy-rc.d
saved=$policy.kosa8-saved
restore() {
  if [ -e "$saved" ]; then mv -f "$saved" "$policy"; else rm -f "$policy"; fi
}
hadRedis=no
if [ -e /lib/systemd/system/redis-server.service ]; then hadRedis=yes; fi
trap restore EXIT
trap 'exit 130' INT TERM HUP
if [ -e "$policy" ] && [ ! -e "$saved" ]; then mv "$policy" "$saved"; fi
printf '#!/bin/sh\\nexit 101\\n' > "$policy"
chmod 755 "$policy"
if ! apt-get install -y -q --no-install-recommends --simulate "$@" >/dev/null 2>&1; then
  apt-get update -q
fi
if ! apt-get install -y -q --no-install-recommends "$@"; then
  apt-get update -q
  apt-get install -y -q --no-install-recommends "$@"
fi
if [ "$hadRedis" = no ] && [ -d /run/systemd/system ] && [ -e /lib/systemd/system/redis-server.service ]; then
  systemctl disable -q redis-server.service
fi`

async function installSystemPackages() {
  const packages = missingPackages()
  if (packages.length === 0) return skipStep("the system's packages", 'installed')
  const byHand = `${isRoot ? '' : 'sudo '}apt-get install --no-install-recommends ${packages.join(' ')}`
  if (!isInstalled({ program: 'apt-get' })) {
    throw new SetupError(`these Debian packages are missing: ${packages.join(', ')}`,
      'this system has no apt: install what they contain by its own means', { exitStatus: 2 })
  }
  const rootCommand = await findRootCommand()
  if (rootCommand === null) {
    throw new SetupError(`these packages are missing: ${packages.join(', ')}`, `run this, then start again: ${byHand}`, { exitStatus: 2 })
  }
  await runStep(`install ${packages.join(', ')}`, async (tell) => {
    const [program, ...args] = [...rootCommand, 'sh', '-c', INSTALL_SCRIPT, 'sh', ...packages]
    await runProgram(program, args, { tell, stdin: rootCommand.length > 0 ? 'inherit' : 'ignore', hint: `check the network, or run: ${byHand}` })
    const still = missingPackages()
    if (still.length > 0) throw new SetupError(`still missing after the installation: ${still.join(', ')}`, `run: ${byHand}`)
  })
}

// The build

async function build() {
  const sources = hashSources()
  const built = existsSync(STAMP) ? readFileSync(STAMP, 'utf8') : ''
  if (built === sources) return skipStep('the build', 'up to date')
  await runStep('build', async (tell) => {
    await rm(STAMP, { force: true })
    await runProgram('npm', ['run', 'build', '--silent'], { tell })
  })
}

// The images

function imagesDirectory() {
  const home = process.env.KOSA8_HOME || path.join(os.homedir(), '.kosa8')
  return path.resolve(process.env.KOSA8_IMAGES_DIR || path.join(home, 'images'))
}

async function buildImages() {
  const { buildImage } = await import('./dist/src/image/build.js')
  for (const name of IMAGES) {
    let printed = ''
    const began = performance.now()
    const onProgress = ({ title, state, line, elapsedMs }) => {
      const text = `image ${name}: ${title}`
      if (state === 'finished') screen.print(`  ✓ ${text} (${(elapsedMs / 1000).toFixed(1)} s)`)
      else if (screen.isTerminal) screen.draw(`  … ${text} ${(elapsedMs / 1000).toFixed(1)} s  ${line ?? ''}`)
      else if (title !== printed) screen.print(`  … ${text}`)
      printed = title
    }
    const { built, image } = await buildImage(name, { imagesDirectory: imagesDirectory(), onProgress, signal: cancellation.signal })
    if (built) screen.print(`  ✓ image ${name}: built, ${Math.round(image.sizes.rootDiskBytes / 1024 / 1024)} MiB (${seconds(began)})`)
    else skipStep(`image ${name}`, 'up to date')
  }
}

// The way through

async function main(args) {
  const unknown = args.filter((arg) => !['--no-images', '--help', '-h'].includes(arg))
  if (unknown.length > 0) throw new SetupError(`unknown option ${unknown[0]}`, 'run `node setup.mjs --help`', { exitStatus: 2 })
  if (args.includes('--help') || args.includes('-h')) return console.log(HELP)
  checkNode()
  screen.print('kosa8 set-up')
  if (IS_CHECKOUT) await installNpmPackages()
  await installSystemPackages()
  if (IS_CHECKOUT) await build()
  if (!args.includes('--no-images')) await buildImages()
  screen.print(`ready (${seconds(startedAt)})`)
}

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => cancellation.abort())

try {
  await main(process.argv.slice(2))
} catch (error) {
  if (cancellation.signal.aborted) {
    screen.print('set-up interrupted: what is half-done is removed, run it again to go on')
    process.exitCode = 130
  } else {
    const output = error.output ?? error.details?.output ?? []
    if (process.stdout.isTTY === true) screen.print('')
    for (const line of output) console.error(`    ${line}`)
    console.error(`set-up: ${error.message}`)
    if (error.hint !== undefined) console.error(`  → ${error.hint}`)
    process.exitCode = error.exitStatus ?? 1
  }
}
