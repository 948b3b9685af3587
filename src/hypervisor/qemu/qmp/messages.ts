/**
 * The three kinds of messages QEMU sends over QMP, and how a line becomes one of them.
 */
import { z } from 'zod'
import { Kosa8Error } from '../../../errors/kosa8-error.js'

const greetingSchema = z.object({ QMP: z.object({ version: z.unknown() }).loose() })
const eventSchema = z.object({ event: z.string(), data: z.record(z.string(), z.unknown()).default({}) })
const replySchema = z.object({
  id: z.number().int().optional(),
  return: z.unknown().optional(),
  error: z.object({ class: z.string(), desc: z.string() }).optional(),
})

/** Something that happened in the machine, e.g. SHUTDOWN. */
export interface QmpEvent {
  name: string
  data: Record<string, unknown>
}

/** One message of QEMU. A reply carries the id of the command it answers. */
export type QmpMessage =
  | { kind: 'greeting' }
  | { kind: 'event'; event: QmpEvent }
  | { kind: 'reply'; id: number | undefined; value: unknown; error: string | undefined }

/**
 * Parses one line.
 * @throws Kosa8Error MACHINE_PROTOCOL when it is no message of QMP.
 */
export function parseMessage(line: string): QmpMessage {
  const json = parseJson(line)
  if (greetingSchema.safeParse(json).success) return { kind: 'greeting' }
  const event = eventSchema.safeParse(json)
  if (event.success) return { kind: 'event', event: { name: event.data.event, data: event.data.data } }
  const reply = replySchema.safeParse(json)
  if (!reply.success) throw new Kosa8Error('MACHINE_PROTOCOL', `not a QMP message: ${line.slice(0, 200)}`)
  const { id, error } = reply.data
  return { kind: 'reply', id, value: reply.data.return, error: error && `${error.class}: ${error.desc}` }
}

function parseJson(line: string): unknown {
  try {
    return JSON.parse(line)
  } catch (cause) {
    throw new Kosa8Error('MACHINE_PROTOCOL', `QEMU sent something that is not JSON: ${line.slice(0, 200)}`, { cause })
  }
}
