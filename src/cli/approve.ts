/** `kosa8 approve`, `approve ID [--deny]`, `approve keygen`: for the person whose sandboxes ask before they lose something. */
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import type { Command } from 'commander'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { APPROVAL_MS_DEFAULT, commandOf, nameAct } from '../model/approval.js'
import type { ApprovalDescription } from '../protocol/approvals.js'
import { makeVisible } from '../report/visible.js'
import { writeFileOnce } from '../util/atomic-write.js'
import { createKeyPair, fingerprintOf, isEncryptedKey } from '../util/ed25519.js'
import { askSecret, confirm } from './ask.js'
import type { CliHost, CommandTools } from './host.js'
import { durationOption } from './options.js'
import { tellAge } from './relative-time.js'
import { defineAction, defineVerb, type Cli, type CommonOptions } from './verb.js'

interface ApproveOptions extends CommonOptions {
  key?: string
  for?: number
  deny?: boolean
  yes?: boolean
}

interface KeygenOptions extends CommonOptions {
  out?: string
}

/** The person answered no. */
const NOT_WANTED = 1
/** Mode of a public key. */
const SHARED_MODE = 0o644

/** Adds the verbs. */
export function addApprove(cli: Cli, program: Command): void {
  const approve = defineAction<ApproveOptions>(cli, program.command('approve').argument('[id]'), {
    summary: 'Look at what waits for your approval, and sign or refuse it.',
    examples: ['kosa8 approve', 'kosa8 approve 5f0c2a9be1d34477', 'kosa8 approve 5f0c2a9be1d34477 --deny'],
  }, (tools, [id], options) => id === undefined ? list(tools, options) : decide(tools, id, options))
    .option('--key <file>', 'your private key (default: approval.pem in the state folder)')
    .option('--for <duration>', 'how long it may be used, an hour at most (default: 10m)', durationOption)
    .option('--deny', 'refuse it, or take an approval back that was not used')
    .option('-y, --yes', 'do not ask')
  defineVerb<KeygenOptions>(cli, approve, 'keygen', {
    summary: 'Make a key pair: you keep the private key, sandboxes are created with the public one.',
    examples: ['kosa8 approve keygen --out ~/keys/approval.pem', 'kosa8 create web --approvals ~/keys/approval.pem.pub'],
  }, keygen).option('--out <file>', 'file for the private key (default: approval.pem in the state folder); the public one is beside it, with .pub')
}

async function list({ client, output }: CommandTools, options: ApproveOptions): Promise<number> {
  const requests = await client.approvals.list()
  if (options.json === true) {
    output.printJson(requests)
    return 0
  }
  const now = Date.now()
  const told = requests.map((request) => [
    `${request.id}  asked ${tellAge(request.askedAt, now)}, ${request.state === 'approved' ? `approved until ${request.until}` : request.state}`,
    `  ${makeVisible(nameAct(request))}`, `  ${tellLoss(request, now)}`,
  ].join('\n'))
  output.print(told.length === 0 ? 'nothing waits for an approval' : told.join('\n'))
  return 0
}

async function decide(tools: CommandTools, id: string, options: ApproveOptions): Promise<number> {
  const { client, host, output } = tools
  const request = await client.approvals.get(id)
  if (options.deny === true) {
    const denied = await client.approvals.deny(id)
    if (options.json === true) output.printJson(denied)
    else output.print(`refused: ${makeVisible(nameAct(request))}`)
    return 0
  }
  const out = options.json === true ? host.stderr : host.stdout
  const forMs = options.for ?? APPROVAL_MS_DEFAULT
  out.write(`Request ${id}, asked ${tellAge(request.askedAt, Date.now())}: ${makeVisible(nameAct(request))}\n`
    + `${sentence(tellLoss(request, Date.now()))}\nWho knows the request may then do this once, within ${tellMinutes(forMs)}.\n`)
  if (options.yes !== true && !await confirm(host, out, 'Approve?')) {
    output.note('nothing was approved')
    return NOT_WANTED
  }
  const approved = await client.approvals.approve(request, { ...await openKey(host, options.key), forMs })
  if (options.json === true) output.printJson(approved)
  else output.print(`approved until ${approved.until}; it is used with: ${commandOf(request)} --approval ${id}`)
  return 0
}

async function openKey(host: CliHost, given: string | undefined): Promise<{ privateKey: string; passphrase?: string }> {
  const file = keyFile(host, given)
  const privateKey = await readFile(file, 'utf8').catch((cause: unknown) => {
    throw new Kosa8Error('USAGE', `the private key ${file} cannot be read`, { hint: 'name it with --key, or make a pair with `kosa8 approve keygen`', cause })
  })
  return isEncryptedKey(privateKey) ? { privateKey, passphrase: await askSecret(host, `Passphrase of ${file}`) } : { privateKey }
}

async function keygen({ host, output }: CommandTools, _args: string[], options: KeygenOptions): Promise<number> {
  const file = keyFile(host, options.out)
  const { privateKey, publicKey } = createKeyPair(await choosePassphrase(host))
  await writeKey(file, privateKey, 0o600)
  await writeKey(`${file}.pub`, publicKey, SHARED_MODE)
  const fingerprint = fingerprintOf(publicKey)
  if (options.json === true) output.printJson({ privateKey: file, publicKey: `${file}.pub`, fingerprint })
  else output.print(`private key: ${file}\npublic key:  ${file}.pub (${fingerprint})\ncreate a sandbox that asks: kosa8 create NAME --approvals ${file}.pub`)
  if (!isEncryptedKey(privateKey)) output.note('the private key has no passphrase: whatever runs as you can read it and approve. Keep it where agents do not run')
  return 0
}

/** Asked for at a terminal only; null: none. */
async function choosePassphrase(host: CliHost): Promise<string | null> {
  if (!host.terminals.stdin) return null
  const passphrase = await askSecret(host, 'Passphrase for the private key (empty: none)')
  if (passphrase === '' || passphrase === await askSecret(host, 'The same again')) return passphrase
  throw new Kosa8Error('USAGE', 'the two passphrases differ', { hint: 'nothing was written; try again' })
}

async function writeKey(file: string, content: string, mode: number): Promise<void> {
  if (await writeFileOnce(file, content, mode)) return
  throw new Kosa8Error('USAGE', `${file} is there already`, { hint: 'name another file with --out, or move it away' })
}

function keyFile(host: CliHost, given: string | undefined): string {
  return given === undefined ? path.join(host.settings.home, 'approval.pem') : path.resolve(host.cwd, given)
}

/** What the act costs, as a person judges it. */
function tellLoss({ action, target, targetCreatedAt, lost }: ApprovalDescription, now: number): string {
  const age = targetCreatedAt === null ? '' : tellAge(targetCreatedAt, now).replace('just now', 'a moment ago')
  switch (action) {
    case 'rewind': return `everything since ${age} is lost${lost.length === 0 ? '' : `, and with it ${lost.join(', ')}`}`
    case 'delete': return `its machine and its files are lost${lost.length === 0 ? '' : `, and with them ${lost.join(', ')}`}`
    case 'delete-checkpoint': return `it was taken ${age}, and nothing goes back there any more`
    case 'egress': return target === 'deny' ? 'it reaches nothing any more' : 'what is in it can be sent there'
  }
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`
}

function tellMinutes(ms: number): string {
  return ms < 60_000 ? `${Math.ceil(ms / 1000)} seconds` : `${Math.round(ms / 60_000)} minutes`
}
