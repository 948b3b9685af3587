import { appendFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { createRunId, type RunId } from '../../src/model/ids.js'
import type { RunEvent, TrialRecord } from '../../src/model/run.js'
import { createPaths, preparePaths, type Paths } from '../../src/store/paths.js'
import { RunStore } from '../../src/store/run-store.js'
import { runScript } from '../helpers/script.js'
import { aDocument, aPlan, aTrialRecord } from './records.js'

let home: string
let paths: Paths
let store: RunStore
let run: RunId

beforeEach(async () => {
  home = await mkdtemp(path.join(tmpdir(), 'kosa8-store-'))
  paths = createPaths(home)
  await preparePaths(paths)
  store = new RunStore(paths)
  run = createRunId(Date.now())
  await store.createRun({ id: run, createdAt: new Date().toISOString(), repository: '/repo', labels: ['a', 'b'] })
})

afterEach(() => rm(home, { recursive: true }))

const output = (text: string) => ({ type: 'trial-output', label: 'a', repeat: 1, stream: 'stdout', text }) as const
const textOf = (events: RunEvent[]): string =>
  events.map((event) => (event.type === 'trial-output' ? event.text : '')).join('')

describe('the life of a run', () => {
  it('begins in preparation, without a plan', async () => {
    expect(await store.readPhase(run)).toMatchObject({ phase: 'preparing', error: null })
    expect(await store.readPlan(run)).toBeNull()
    expect(await store.readRunDocument(run)).toBeNull()
  })

  it('takes one plan and keeps it', async () => {
    expect(await store.storePlan(aPlan(run))).toBe(true)
    expect(await store.storePlan({ ...aPlan(run), repeats: 99 })).toBe(false)
    expect(await store.readPlan(run)).toEqual(aPlan(run))
  })

  it('ends once: whoever ends it later changes nothing', async () => {
    const ends = await Promise.all([
      store.setPhase(run, 'cancelled', 'by the user'), store.setPhase(run, 'completed', 'done'),
    ])
    expect(ends.filter(Boolean)).toHaveLength(1)
    const { phase } = await store.readPhase(run)
    expect(await store.setPhase(run, 'running', 'again')).toBe(false)
    expect((await store.readPhase(run)).phase).toBe(phase)
    expect((await store.readEvents(run)).filter((event) => event.type === 'run-end')).toHaveLength(1)
  })

  it('can be taken up again, with its evidence kept', async () => {
    await store.storeTrialRecord(run, aTrialRecord(run))
    await store.storeRunDocument(aDocument(run))
    await store.requestCancel(run, 'Ctrl-C')
    await store.setPhase(run, 'interrupted', 'the queue lost its data')
    await store.reopenRun(run)
    expect(await store.setPhase(run, 'running', 'resumed')).toBe(true)
    expect(await store.readCancelRequest(run)).toBeNull()
    expect(await store.readRunDocument(run)).toBeNull()
    expect(await store.readTrialRecords(run)).toHaveLength(1)
  })

  it('is listed with its phase, and is gone after it was removed', async () => {
    await store.setPhase(run, 'running', 'two trials')
    expect(await store.listRuns()).toEqual([expect.objectContaining({ id: run, labels: ['a', 'b'], phase: 'running' })])
    await store.removeRun(run)
    expect(await store.listRuns()).toEqual([])
    await expect(store.readPhase(run)).rejects.toMatchObject({ code: 'RUN_UNKNOWN' })
    await expect(store.removeRun(run)).rejects.toMatchObject({ code: 'RUN_UNKNOWN' })
  })

  it('is not listed while its folder is still being made', async () => {
    await rm(path.join(paths.runDirectory(run), 'request.json'))
    expect(await store.listRuns()).toEqual([])
  })

  it('wakes who waits for the wish to cancel, with the first reason', async () => {
    const waiting = store.waitForCancelRequest(run, AbortSignal.timeout(20_000))
    await store.requestCancel(run, 'Ctrl-C')
    await store.requestCancel(run, 'another')
    expect(await waiting).toBe('Ctrl-C')
    const stop = new AbortController()
    const other = createRunId(Date.now())
    await store.createRun({ id: other, createdAt: '', repository: null, labels: [] })
    const neverCancelled = store.waitForCancelRequest(other, stop.signal)
    stop.abort()
    expect(await neverCancelled).toBeNull()
  })

  it.each(['request.json', 'state.json', 'plan.json', 'run.json'])('names a damaged %s', async (name) => {
    const file = path.join(paths.runDirectory(run), name)
    await writeFile(file, '{"id": "r')
    const reads = (): Promise<unknown> => Promise.all([
      store.readRequest(run), store.readPhase(run), store.readPlan(run), store.readRunDocument(run),
    ])
    await expect(reads()).rejects.toMatchObject({ code: 'STORE_CORRUPT', message: expect.stringContaining(file) as string })
    await writeFile(file, '{"schema": 7}')
    await expect(reads()).rejects.toMatchObject({ code: 'STORE_CORRUPT', details: { file } })
  })
})

describe('the record of a trial', () => {
  it('is accepted once, whatever the attempt (invariant 5)', async () => {
    expect(await store.storeTrialRecord(run, aTrialRecord(run, { attempt: 1 }))).toEqual({ accepted: true })
    expect(await store.storeTrialRecord(run, aTrialRecord(run, { attempt: 2 }))).toEqual({ accepted: false, reason: 'stored' })
    expect(await store.readTrialRecords(run)).toEqual([aTrialRecord(run, { attempt: 1 })])
  })

  it('is refused when a later attempt has begun', async () => {
    const trial = { run, label: 'a', repeat: 1 }
    await store.storeAttempt(trial, 2)
    await store.storeAttempt(trial, 1)
    expect(await store.readAttempt(trial)).toBe(2)
    expect(await store.storeTrialRecord(run, aTrialRecord(run, { attempt: 1 }))).toEqual({ accepted: false, reason: 'superseded' })
    expect(await store.readTrialRecord(trial)).toBeNull()
    expect(await store.storeTrialRecord(run, aTrialRecord(run, { attempt: 2 }))).toEqual({ accepted: true })
  })

  it('is taken from one of two processes that store it at once', async () => {
    const script = new URL('./store-writer.ts', import.meta.url)
    const answers = await Promise.all(['1', '2'].map((attempt) => runScript(script, ['record', home, run, attempt])))
    expect(answers.map((text) => text.trim()).sort()).toEqual(['{"accepted":false,"reason":"stored"}', '{"accepted":true}'])
    expect(await store.readTrialRecords(run)).toHaveLength(1)
  })

  it('is read back by label and repeat, as a whole', async () => {
    const records: TrialRecord[] = []
    for (const [label, repeat] of [['a', 1], ['a', 2], ['a', 10], ['b@n=1', 1], ['baseline', 1]] as const) {
      records.push(aTrialRecord(run, { label, repeat, trial: `${run}/${label}/${repeat}` }))
    }
    for (const record of [...records].reverse()) await store.storeTrialRecord(run, record)
    expect(await store.readTrialRecords(run)).toEqual(records)
  })
})

describe('the event log', () => {
  it('gives events in order and goes on from any of them', async () => {
    await Promise.all(['1', '2', '3'].map((text) => store.appendEvent(run, output(text))))
    const events = await store.readEvents(run)
    expect(textOf(events)).toBe('123')
    expect(textOf(await store.readEvents(run, events[0]?.seq))).toBe('23')
  })

  it('keeps every event of two processes that write at once', async () => {
    const script = new URL('./store-writer.ts', import.meta.url)
    await Promise.all(['x', 'y'].map((letter) => runScript(script, ['events', home, run, letter])))
    const text = textOf(await store.readEvents(run))
    expect(text.replaceAll('x', '')).toHaveLength(300 * 500)
    expect(text.replaceAll('y', '')).toHaveLength(300 * 500)
    expect(text).toMatch(/^((x{500})|(y{500}))+$/)
  })

  it('splits long output between characters and loses none of it', async () => {
    const text = '\u0000\u{1F600}ä'.repeat(4000)
    await store.appendEvent(run, output(text))
    const events = await store.readEvents(run)
    expect(textOf(events)).toBe(text)
    expect(events.length).toBeGreaterThan(5)
    const log = await readFile(path.join(paths.runDirectory(run), 'events.jsonl'))
    expect(Math.max(...log.toString().split('\n').map((line) => Buffer.byteLength(line)))).toBeLessThanOrEqual(4096)
  })

  it('cuts any other long text', async () => {
    await store.appendEvent(run, { type: 'run-phase', phase: 'running', message: 'm'.repeat(10_000) })
    const [event] = await store.readEvents(run)
    expect(event).toMatchObject({ message: expect.stringMatching(/^m{1000,4000} …$/) as string })
  })

  it('leaves out what a killed writer left half-written, and nothing else', async () => {
    const file = path.join(paths.runDirectory(run), 'events.jsonl')
    await store.appendEvent(run, output('1'))
    await appendFile(file, '\n{"at":"2026-01-01T00:00:00Z","type":"trial-outp')
    expect(textOf(await store.readEvents(run))).toBe('1')
    await store.appendEvent(run, output('2'))
    expect(textOf(await store.readEvents(run))).toBe('12')
  })

  it('names a log with a foreign event', async () => {
    const file = path.join(paths.runDirectory(run), 'events.jsonl')
    await appendFile(file, '{"type":"surprise"}\n')
    await expect(store.readEvents(run)).rejects.toMatchObject({ code: 'STORE_CORRUPT', message: expect.stringContaining(file) as string })
  })

  it('can be followed from the middle to the end of the run', async () => {
    await store.appendEvent(run, output('1'))
    await store.appendEvent(run, output('2'))
    const from = (await store.readEvents(run))[0]?.seq ?? 0
    const seen: RunEvent[] = []
    const following = (async () => {
      for await (const event of store.followEvents(run, from, AbortSignal.timeout(30_000))) {
        seen.push(event)
        if (event.type === 'trial-output' && event.text === '2') void store.appendEvent(run, output('3'))
        if (event.type === 'trial-output' && event.text === '3') void store.setPhase(run, 'completed', 'done')
      }
    })()
    await following
    expect(seen.map((event) => event.type)).toEqual(['trial-output', 'trial-output', 'run-phase', 'run-end'])
  })

  it('stops being followed when the follower goes away', async () => {
    const stop = new AbortController()
    const following = store.followEvents(run, 0, stop.signal).next()
    stop.abort()
    expect((await following).done).toBe(true)
  })
})
