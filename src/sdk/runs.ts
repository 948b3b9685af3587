/** Runs: start one, follow it, read its results, bring one into the repository. */
import type { Readable } from 'node:stream'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { runEventSchema, type RunEvent } from '../model/run.js'
import { fillPath } from '../protocol/methods.js'
import {
  RUN_REQUEST_BYTES_MAX, type AppliedApproach, type ApplyRunRequest, type CancelRunRequest, type RunRequest, type RunStatus,
  type RunSummary,
} from '../protocol/runs.js'
import { STREAM_PATHS, parseEvents } from '../protocol/streams.js'
import type { DaemonConnection } from './connection.js'

/** How often in a row following may fail without a new event before it is given up. */
const FOLLOW_ATTEMPTS_MAX = 5

/** The runs of the daemon. Unknown ids: RUN_UNKNOWN. */
export class RunsClient {
  constructor(private readonly connection: DaemonConnection) {}

  /** Starts a run and returns its id; follow it with {@link follow}. */
  async start(request: RunRequest): Promise<string> {
    const sizeBytes = Buffer.byteLength(JSON.stringify(request))
    if (sizeBytes > RUN_REQUEST_BYTES_MAX) {
      throw new Kosa8Error('APPROACH_INVALID', `scripts and patches of all trials have ${sizeBytes} bytes together; at most ${RUN_REQUEST_BYTES_MAX} are allowed`, {
        hint: 'give fewer matrix values, or smaller scripts',
      })
    }
    return (await this.connection.call('startRun', { body: request })).id
  }

  /** Newest first. */
  async list(): Promise<RunSummary[]> {
    return this.connection.call('listRuns', {})
  }

  async get(id: string): Promise<RunStatus> {
    return this.connection.call('getRun', { params: { id } })
  }

  /** Asks a run to end; finished results are kept. */
  async cancel(id: string, reason: string, as: CancelRunRequest['as'] = 'cancelled'): Promise<void> {
    await this.connection.call('cancelRun', { params: { id }, body: { reason, as } })
  }

  /** Removes a run's folder and refs. @throws RUN_ACTIVE. */
  async remove(id: string): Promise<void> {
    await this.connection.call('deleteRun', { params: { id } })
  }

  /** Brings one trial's result into a branch. `approach` is a label, or `label/repeat`. */
  async apply(id: string, request: ApplyRunRequest): Promise<AppliedApproach> {
    return this.connection.call('applyRun', { params: { id }, body: request })
  }

  /** Patch from `a` to `b`, or from the base to `a`. */
  async diff(id: string, a: string, b?: string): Promise<Readable> {
    const query = new URLSearchParams({ a, ...(b === undefined ? {} : { b }) })
    return this.connection.stream({ verb: 'GET', path: `${fillPath(STREAM_PATHS.runDiff, { id })}?${query.toString()}` })
  }

  /** A file of the run's folder, by its path relative to it. */
  async file(id: string, relative: string): Promise<Readable> {
    const encoded = relative.split('/').map(encodeURIComponent).join('/')
    return this.connection.stream({ verb: 'GET', path: fillPath(STREAM_PATHS.runFile, { id }).replace('*', encoded) })
  }

  /** Events from `fromSeq` on, as long as this one connection lasts. */
  async* events(id: string, fromSeq = 0, signal?: AbortSignal): AsyncGenerator<RunEvent> {
    const path = `${fillPath(STREAM_PATHS.runEvents, { id })}?from=${fromSeq}`
    const answer = await this.connection.stream({ verb: 'GET', path, signal })
    try {
      for await (const event of parseEvents(answer)) {
        const parsed = runEventSchema.safeParse(JSON.parse(event.data))
        if (parsed.success) yield parsed.data
      }
    } finally {
      answer.destroy()
    }
  }

  /**
   * Every event of a run until its end. When the daemon dies in the middle it is started again and following
   * goes on after the last event seen. Ends early, without error, when the signal is aborted.
   * @throws DAEMON_UNREACHABLE when it cannot be brought back.
   */
  async* follow(id: string, options: { fromSeq?: number; signal?: AbortSignal } = {}): AsyncGenerator<RunEvent> {
    const isStopped = (): boolean => options.signal?.aborted === true
    let nextSeq = options.fromSeq ?? 0
    let failures = 0
    while (!isStopped()) {
      let reason: unknown
      try {
        for await (const event of this.events(id, nextSeq, options.signal)) {
          // A note for which the run's log has no room has the place of the event before it.
          if (event.seq < nextSeq - 1) continue
          nextSeq = event.seq + 1
          failures = 0
          yield event
          if (event.type === 'run-end') return
        }
      } catch (error) {
        if (!isBrokenConnection(error)) throw error
        reason = error
      }
      failures += 1
      if (failures >= FOLLOW_ATTEMPTS_MAX && !isStopped()) {
        throw new Kosa8Error('DAEMON_UNREACHABLE', `the events of run ${id} keep breaking off`, { cause: reason, hint: `see \`kosa8 runs show ${id}\`` })
      }
    }
  }
}

/** Our own errors other than these come from the daemon and mean what they say. */
function isBrokenConnection(error: unknown): boolean {
  return !Kosa8Error.isInstance(error) || error.code === 'DAEMON_UNREACHABLE' || error.code === 'CANCELLED'
}
