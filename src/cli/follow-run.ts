/**
 * Following a run to its end, and ending it when the user says so.
 *
 * The first stop signal cancels the run and waits, bounded, for the document of what is finished; the second
 * leaves at once. A signal that arrives while the run is being started is kept until its id is known.
 */
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { RunDocument, RunEvent } from '../model/run.js'
import type { CommandTools, StopSignal } from './host.js'
import { createProgress } from './progress.js'

/** How long a cancelled run may take to write what is finished, milliseconds. */
const CANCEL_DEADLINE_MS = 12_000

/** How following ended. */
export interface FollowedRun {
  id: string
  /** Null when the run had not ended when we left. */
  document: RunDocument | null
  /** The signal that made us stop; null: none. */
  stoppedBy: StopSignal | null
}

/** Starts a run (or names one that is there) and follows it to its end, showing progress. */
export async function followRun(
  tools: CommandTools, start: () => Promise<string>, onEvent?: (event: RunEvent) => void,
): Promise<FollowedRun> {
  const { host, client, output } = tools
  const leaving = new AbortController()
  const progress = createProgress(host)
  let id: string | null = null
  let stoppedBy: StopSignal | null = null
  let deadline: NodeJS.Timeout | undefined
  const cancel = (signal: StopSignal): void => {
    if (id === null) return
    deadline = setTimeout(() => leaving.abort(), CANCEL_DEADLINE_MS)
    client.runs.cancel(id, `the command was ended by ${signal}`, 'interrupted').catch((error: unknown) => {
      output.note(`the run could not be cancelled: ${error instanceof Error ? error.message : String(error)}`)
      leaving.abort()
    })
  }
  const stopListening = host.onSignal((signal) => {
    if (stoppedBy !== null) return leaving.abort()
    stoppedBy = signal
    output.note('stopping: waiting for what is finished (again to leave at once)')
    cancel(signal)
  })
  const signalSeen = (): StopSignal | null => stoppedBy
  try {
    id = await start()
    const early = signalSeen()
    if (early !== null) cancel(early)
    for await (const event of client.runs.follow(id, { signal: leaving.signal })) {
      progress.show(event)
      onEvent?.(event)
    }
    progress.end()
    const document = leaving.signal.aborted ? null : await readDocument(tools, id)
    return { id, document, stoppedBy: signalSeen() }
  } finally {
    progress.end()
    clearTimeout(deadline)
    stopListening()
  }
}

async function readDocument({ client }: CommandTools, id: string): Promise<RunDocument> {
  const { document, phase } = await client.runs.get(id)
  if (document !== null) return document
  throw new Kosa8Error('STORE_CORRUPT', `run ${id} has ended (${phase}) without a result document`)
}
