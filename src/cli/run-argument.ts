/** The RUN argument of several verbs: an id, or `latest`. */
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { RunDocument } from '../model/run.js'
import { runIdSchema } from '../protocol/runs.js'
import type { Kosa8Client } from '../sdk/client.js'

/** Id of the run that is meant. @throws RUN_UNKNOWN for what can be no id, and when there is no run at all. */
export async function resolveRun(client: Kosa8Client, text: string): Promise<string> {
  if (runIdSchema.safeParse(text).success) return text
  if (text !== 'latest') throw new Kosa8Error('RUN_UNKNOWN', `there is no run ${JSON.stringify(text)}`, { hint: 'list the runs with: kosa8 runs; the newest one is called latest' })
  const newest = (await client.runs.list())[0]
  if (newest !== undefined) return newest.id
  throw new Kosa8Error('RUN_UNKNOWN', 'there is no run yet', { hint: 'start one with `kosa8 fork`' })
}

/** Document of a run that has ended. @throws RUN_ACTIVE while it goes on. */
export async function readEndedRun(client: Kosa8Client, text: string): Promise<RunDocument> {
  const id = await resolveRun(client, text)
  const { document, phase } = await client.runs.get(id)
  if (document !== null) return document
  throw new Kosa8Error('RUN_ACTIVE', `run ${id} has no results yet: it is ${phase}`, { hint: `follow it with \`kosa8 runs show ${id} --follow\`` })
}
