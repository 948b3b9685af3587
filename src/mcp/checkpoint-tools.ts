/** Tools that save a sandbox and bring it back: checkpoint, list, rewind. The CLI and the SDK see the same list. */
import { z } from 'zod'
import { sandboxNameSchema } from '../model/ids.js'
import type { CheckpointRecord } from '../sdk/checkpoint-store.js'
import { approvalParameter, defineTool } from './tool.js'

/** Who takes the checkpoints of this server. */
const TAKEN_BY = 'agent'
const name = sandboxNameSchema.describe('name of the sandbox')

const checkpoint = defineTool({
  name: 'sandbox_checkpoint',
  title: 'Save a sandbox',
  description: 'Saves a running sandbox as it is now: memory, processes and files. It goes on running. Take one before anything you could not undo. '
    + 'A sandbox keeps its newest ten; `evicted` names the ones that had to go.',
  annotations: { destructiveHint: false },
  input: z.strictObject({
    name,
    label: z.string().min(1).max(200).optional().describe('why it is taken; sandbox_rewind takes it as a name'),
  }),
  run: async ({ client }, input) => {
    const options = { by: TAKEN_BY, ...(input.label === undefined ? {} : { label: input.label }) }
    const taken = await client.checkpoint(input.name, options)
    const evicted = taken.evicted.length === 0 ? '' : `; evicted ${taken.evicted.join(', ')}`
    return { text: `took ${tellCheckpoint(taken.checkpoint)}${evicted}`, content: { ...taken } }
  },
})

const list = defineTool({
  name: 'sandbox_checkpoint_list',
  title: 'List the checkpoints of a sandbox',
  description: 'Lists the checkpoints of a sandbox, oldest first. The last one is where sandbox_rewind goes by default.',
  annotations: { readOnlyHint: true },
  input: z.strictObject({ name }),
  run: async ({ client }, input) => {
    const checkpoints = await client.listCheckpoints(input.name)
    const lines = checkpoints.map((each) => `${tellCheckpoint(each)}, taken ${each.created_at} by ${each.by}`)
    return { text: lines.length === 0 ? `${input.name} has no checkpoints` : lines.join('\n'), content: { checkpoints } }
  },
})

const rewind = defineTool({
  name: 'sandbox_rewind',
  title: 'Put a sandbox back',
  description: 'Puts a sandbox back to a checkpoint, under the same name: memory, processes and files are as they were, and running. '
    + 'What happened since is lost, and later checkpoints are dropped (`dropped`); take a checkpoint first if you might want the current state back.',
  annotations: { destructiveHint: true },
  input: z.strictObject({
    name,
    to: z.string().min(1).max(200).optional().describe('id or label of a checkpoint, compared without case; the newest by default'),
    approval: approvalParameter,
  }),
  run: async ({ client }, input) => {
    const rewound = await client.rewind(input.name, {
      ...(input.to === undefined ? {} : { to: input.to }), ...(input.approval === undefined ? {} : { approval: input.approval }),
    })
    const dropped = rewound.dropped.length === 0 ? '' : `; dropped ${rewound.dropped.join(', ')}`
    return { text: `rewound to ${tellCheckpoint(rewound.checkpoint)} in ${rewound.restore_ms} ms${dropped}`, content: { ...rewound } }
  },
})

function tellCheckpoint({ id, label }: CheckpointRecord): string {
  return label === null ? id : `${id} (${label})`
}

export const CHECKPOINT_TOOLS = [checkpoint, list, rewind]
