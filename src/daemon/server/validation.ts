/** Checks what comes in against a schema and says in one line what is wrong with it. */
import type { z } from 'zod'
import { Kosa8Error } from '../../errors/kosa8-error.js'

/** @throws USAGE naming the field and the rule it breaks. */
export function validate<Schema extends z.ZodType>(schema: Schema, value: unknown, what: string): z.infer<Schema> {
  const parsed = schema.safeParse(value)
  if (parsed.success) return parsed.data
  const issue = parsed.error.issues[0]
  const field = issue?.path.join('.') ?? ''
  // A name or id in a path is what the user typed: it says more than the parameter's name.
  const typed = what === 'path' ? (value as Record<string, unknown>)[field] : undefined
  const place = typeof typed === 'string' ? JSON.stringify(typed) : `${what}${field === '' ? '' : ` ${field}`}`
  throw new Kosa8Error('USAGE', `${place}: ${issue?.message ?? 'invalid'}`, {
    details: { issues: parsed.error.issues.slice(0, 20).map(({ path, message }) => ({ path: path.map(String), message })) },
  })
}
