/** Tools for sandboxes as a whole: create, list, run a command, remove. */
import { z } from 'zod'
import { egressSchema } from '../model/egress.js'
import { sandboxNameSchema } from '../model/ids.js'
import {
  cpusSchema, diskMibSchema, imageNameSchema, memoryMibSchema, processesMaxSchema, type SandboxDescription,
} from '../protocol/sandboxes.js'
import { readSandboxDefaults } from '../sdk/sandbox-defaults.js'
import { execTool } from './exec-tool.js'
import { publicKeySchema } from '../protocol/approvals.js'
import { approvalParameter, defineTool } from './tool.js'

const name = sandboxNameSchema.describe('name of the sandbox')
/** Sandboxes that one answer names. */
const SANDBOXES_MAX = 200

const create = defineTool({
  name: 'sandbox_create',
  title: 'Create a sandbox',
  description: 'Creates a sandbox: a Linux virtual machine of its own, booted and running, in which you are root. '
    + 'With `repository`, that git repository of the host (committed state and uncommitted changes) is put into /workspace, '
    + 'and its kosa8.yaml decides what you leave out. The host\'s files never change. Takes some seconds, up to a minute on a slow machine.',
  annotations: { destructiveHint: false },
  input: z.strictObject({
    name: name.describe('a name that no sandbox has yet: lower-case letters, digits, dashes'),
    repository: z.string().min(1).max(4096).optional().describe('folder of a git repository on the host, absolute or relative to where the server was started'),
    image: imageNameSchema.optional().describe('base image; `base` by default'),
    memoryMib: memoryMibSchema.optional().describe('memory in MiB; 1024 by default'),
    cpus: cpusSchema.optional().describe('virtual processors; 1 by default'),
    diskMib: diskMibSchema.optional().describe('size of the disk in MiB; the image\'s by default, and not below it'),
    processesMax: processesMaxSchema.optional().describe('processes of all commands together; 4096 by default'),
    egress: egressSchema.optional().describe('what it may reach: `deny` (default) nothing, `allow` everything, or hosts over HTTP and HTTPS such as `registry.example,*.example.org`'),
    approvals: publicKeySchema.optional().describe('Ed25519 public key (PEM) of a person: rewinding, removing and changing egress then need their approval'),
  }),
  run: async ({ client, cwd }, input, { signal, reportProgress }) => {
    const { repository, memoryMib, image, cpus, diskMib, processesMax, egress, approvals } = input
    const sandbox = await client.createSandbox({
      name: input.name,
      ...await readSandboxDefaults(repository, cwd),
      ...(image === undefined ? {} : { image }),
      ...(memoryMib === undefined ? {} : { memMb: memoryMib }),
      ...(cpus === undefined ? {} : { cpus }),
      ...(diskMib === undefined ? {} : { diskMb: diskMib }),
      ...(processesMax === undefined ? {} : { maxProcesses: processesMax }),
      ...(egress === undefined ? {} : { egress }),
      ...(approvals === undefined ? {} : { approvals }),
    }, { signal, onStep: reportProgress })
    return { text: tellSandbox(sandbox), content: { sandbox } }
  },
})

const list = defineTool({
  name: 'sandbox_list',
  title: 'List sandboxes',
  description: 'Lists every sandbox of this host with its state. `gone` means that its machine has ended.',
  annotations: { readOnlyHint: true },
  input: z.strictObject({}),
  run: async ({ client }) => {
    const all = await client.listSandboxes()
    const sandboxes = all.slice(0, SANDBOXES_MAX)
    const lines = sandboxes.map(tellSandbox)
    if (sandboxes.length < all.length) lines.push(`and ${all.length - sandboxes.length} more`)
    return { text: lines.length === 0 ? 'there are no sandboxes' : lines.join('\n'), content: { sandboxes, total: all.length } }
  },
})

const remove = defineTool({
  name: 'sandbox_remove',
  title: 'Remove a sandbox',
  description: 'Destroys a sandbox with its files and all of its checkpoints. This cannot be undone.',
  annotations: { destructiveHint: true },
  input: z.strictObject({ name, approval: approvalParameter }),
  run: async ({ client }, input) => {
    await client.deleteSandbox(input.name, input.approval === undefined ? {} : { approval: input.approval })
    return { text: `removed ${input.name}`, content: { removed: input.name } }
  },
})

function tellSandbox({ name: label, state, image, memoryMib, cpus, egress, repository, approvals }: SandboxDescription): string {
  return `${label} is ${state} (image ${image}, ${memoryMib} MiB, cpus ${cpus}, egress ${egress}${repository === null ? '' : `, repository ${repository}`}${approvals === null ? '' : ', with approvals'})`
}

export const SANDBOX_TOOLS = [create, list, execTool, remove]
