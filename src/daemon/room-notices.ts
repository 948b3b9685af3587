/**
 * Events of a run, with a word in between when its disk is full.
 *
 * Owns: that whoever follows a run which waits for room is told so. The note cannot be an event in the run's log: there is no room
 * for it there. It has the place of the event before it, so a follower that comes back misses nothing.
 */
import type { RunEvent, RunPhase } from '../model/run.js'
import { isDiskFull } from '../util/disk-space.js'

/** How long a run is silent before its disk is looked at, milliseconds. */
const LOOK_AFTER_MS = 1_000

/**
 * @param folder on the disk that the run needs
 * @param fromSeq position the events start after
 */
export async function* withRoomNotices(events: AsyncIterable<RunEvent>, folder: string, fromSeq: number): AsyncGenerator<RunEvent> {
  const iterator = events[Symbol.asyncIterator]()
  let last: { seq: number; phase: RunPhase } = { seq: fromSeq, phase: 'preparing' }
  let wasFull = false
  const ask = (): Promise<IteratorResult<RunEvent>> => {
    const answer = iterator.next()
    answer.catch(() => undefined) // a follower that goes at a notice leaves the next event unasked for
    return answer
  }
  let next = ask()
  for (;;) {
    const result = await orSilence(next)
    if (result === 'silence') {
      const isFull = await isDiskFull(folder)
      if (isFull !== wasFull) yield { ...last, type: 'run-phase', at: new Date().toISOString(), message: isFull ? describeFull(folder) : 'there is room again' }
      wasFull = isFull
      continue
    }
    if (result.done === true) return
    last = { seq: result.value.seq, phase: result.value.type === 'run-phase' ? result.value.phase : last.phase }
    yield result.value
    next = ask()
  }
}

async function orSilence<T>(next: Promise<T>): Promise<T | 'silence'> {
  let timer: NodeJS.Timeout | undefined
  const silence = new Promise<'silence'>((resolve) => { timer = setTimeout(() => resolve('silence'), LOOK_AFTER_MS) })
  try {
    return await Promise.race([next, silence])
  } finally {
    clearTimeout(timer)
  }
}

function describeFull(folder: string): string {
  return `the disk of ${folder} is full: the run waits for room and then goes on; make some with kosa8 checkpoint rm, kosa8 rm or kosa8 runs rm`
}
