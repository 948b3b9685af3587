/** Checks what comes in against a schema and says in one line what is wrong with it. */
import type { z } from 'zod'
import { Kosa8Error } from '../../errors/kosa8-error.js'

/** A longer value is not shown in an error. */
const SHOWN_CHARS_MAX = 80

/** @throws USAGE naming the field and the rule it breaks. */
export function validate<Schema extends z.ZodType>(schema: Schema, value: unknown, what: string): z.infer<Schema> {
  const parsed = schema.safeParse(value)
  if (parsed.success) return parsed.data
  const issue = parsed.error.issues[0]
  const field = issue?.path.join('.') ?? ''
  // What the user typed says more than the parameter's name.
  const typed = (value as Record<string, unknown> | null)?.[field]
  const isShort = typeof typed === 'string' && typed.length <= SHOWN_CHARS_MAX
  const shown = what === 'path' ? JSON.stringify(typed) : `${field} ${JSON.stringify(typed)}`
  const place = isShort ? shown : `${what}${field === '' ? '' : ` ${field}`}`
  throw new Kosa8Error('USAGE', `${place}: ${issue?.message ?? 'invalid'}`, {
    details: { issues: parsed.error.issues.slice(0, 20).map(({ path, message }) => ({ path: path.map(String), message })) },
  })
}
