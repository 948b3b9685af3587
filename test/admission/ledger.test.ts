import { setImmediate } from 'node:timers/promises'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { Ledger } from '../../src/admission/ledger.js'
import type { ReservationId } from '../../src/model/ids.js'
import type { Reservation } from '../../src/model/reservation.js'
import { createPaths } from '../../src/store/paths.js'
import { ReservationStore } from '../../src/store/reservation-store.js'

const MIB = 2 ** 20
const owner = { pid: 7, startTicks: 9 }
const asking = (mib: number, holder = 'trial a') => ({ bytes: mib * MIB, holder, kind: 'trial', owner }) as const

let budgetMib: number
let saved: Map<ReservationId, Reservation>
let ledger: Ledger

beforeEach(() => {
  budgetMib = 1000
  saved = new Map()
  ledger = new Ledger({
    budgetBytes: () => budgetMib * MIB,
    memory: {
      save: async (reservation) => { await setImmediate(); saved.set(reservation.id, reservation) },
      remove: async (id) => { await setImmediate(); saved.delete(id) },
    },
  })
})

const reservedMib = () => ledger.status().reservedBytes / MIB

describe('the ledger', () => {
  it('never promises more than the budget to 64 requests at once, and serves them all (invariant 7)', async () => {
    let live = 0
    let most = 0
    await Promise.all(Array.from({ length: 64 }, async (_, index) => {
      const mib = 50 + (index * 37) % 300
      const reservation = await ledger.reserve(asking(mib, `trial ${index}`))
      live += mib
      most = Math.max(most, live)
      expect(reservedMib()).toBeLessThanOrEqual(1000)
      expect(saved.get(reservation.id)).toEqual(reservation)
      await setImmediate()
      live -= mib
      await ledger.release(reservation.id)
    }))
    expect(most).toBeLessThanOrEqual(1000)
    expect(most).toBeGreaterThan(600)
    expect(ledger.status()).toMatchObject({ reservedBytes: 0, waiting: [] })
    expect(saved.size).toBe(0)
  })

  it('lets nobody overtake one who waits, however little he asks for', async () => {
    const first = await ledger.reserve(asking(900))
    const order: string[] = []
    const large = ledger.reserve(asking(500)).then((reservation) => { order.push('large'); return reservation })
    const small = ledger.reserve(asking(50)).then(() => order.push('small'))
    expect(await ledger.tryReserve(asking(50))).toEqual({ admitted: false, reason: 'others', message: 'needs 50 MiB, 100 MiB free, 2 before it' })
    await ledger.release(first.id)
    await Promise.all([large, small])
    expect(order).toEqual(['large', 'small'])
    expect(reservedMib()).toBe(550)
  })

  it('says what a request waits for, and says it again when that changes', async () => {
    const first = await ledger.reserve(asking(600))
    const second = await ledger.reserve(asking(280))
    const messages: string[] = []
    const waiting = ledger.reserve(asking(900, 'trial b/1'), { onWait: (message) => messages.push(message) })
    await ledger.release(second.id)
    expect(ledger.status().waiting).toEqual([{ holder: 'trial b/1', bytes: 900 * MIB, message: 'needs 900 MiB, 400 MiB free' }])
    await ledger.release(first.id)
    await waiting
    expect(messages).toEqual(['needs 900 MiB, 120 MiB free', 'needs 900 MiB, 400 MiB free'])
  })

  it('refuses at once what can never fit, and says what to do', async () => {
    await expect(ledger.reserve(asking(1001, 'sandbox box'))).rejects.toMatchObject({
      code: 'MEMORY_INSUFFICIENT', message: 'sandbox box needs 1001 MiB, more than the 1000 MiB this host can give in all',
      hint: expect.stringContaining('--mem') as string,
    })
    expect(await ledger.tryReserve(asking(1001))).toMatchObject({ admitted: false, reason: 'tooLarge' })
  })

  it('does not keep a request waiting that a shrunken budget has made hopeless', async () => {
    const first = await ledger.reserve(asking(500))
    const large = ledger.reserve(asking(800))
    const small = ledger.reserve(asking(300))
    budgetMib = 700
    ledger.refresh()
    expect(ledger.status().waiting).toHaveLength(2)
    await ledger.release(first.id)
    await expect(large).rejects.toMatchObject({ code: 'MEMORY_INSUFFICIENT' })
    expect((await small).bytes).toBe(300 * MIB)
  })

  it('lets one who waits go away, and serves the next', async () => {
    await ledger.reserve(asking(900))
    const stop = new AbortController()
    const large = ledger.reserve(asking(500), { signal: stop.signal })
    const small = ledger.reserve(asking(50))
    stop.abort()
    await expect(large).rejects.toMatchObject({ code: 'CANCELLED' })
    await small
    await expect(ledger.reserve(asking(1), { signal: stop.signal })).rejects.toMatchObject({ code: 'CANCELLED' })
    expect(reservedMib()).toBe(950)
  })

  it('admits nobody during a veto, says why, and goes on after it', async () => {
    ledger.setVeto('the host is short of memory')
    const waiting = ledger.reserve(asking(100))
    expect(await ledger.tryReserve(asking(100))).toMatchObject({ admitted: false, reason: 'pressure', message: 'the host is short of memory' })
    expect(ledger.status().waiting[0]?.message).toBe('the host is short of memory')
    ledger.setVeto(null)
    await waiting
    expect(reservedMib()).toBe(100)
  })

  it('grows a reservation only into what is free, and shrinks it for the benefit of who waits', async () => {
    const reservation = await ledger.reserve(asking(600))
    expect(await ledger.resize(reservation.id, 1001 * MIB)).toEqual({ admitted: false, reason: 'noRoom', message: 'needs 401 MiB, 400 MiB free' })
    expect(reservedMib()).toBe(600)
    expect(await ledger.resize(reservation.id, 700 * MIB)).toMatchObject({ admitted: true })
    const waiting = ledger.reserve(asking(500))
    await ledger.resize(reservation.id, 200 * MIB)
    await waiting
    expect(reservedMib()).toBe(700)
    expect([...saved.values()].map(({ bytes }) => bytes / MIB).sort()).toEqual([200, 500])
    budgetMib = 100
    expect(await ledger.resize(reservation.id, 100 * MIB)).toMatchObject({ admitted: true })
  })

  it('promises nothing that could not be made durable', async () => {
    const failing = new Ledger({
      budgetBytes: () => 100 * MIB,
      memory: { save: () => Promise.reject(new Error('no space left')), remove: async () => undefined },
    })
    await expect(failing.reserve(asking(100))).rejects.toThrow('no space left')
    expect(failing.status().reservedBytes).toBe(0)
  })

  it('does not bring a reservation back that was released while it was being resized', async () => {
    const reservation = await ledger.reserve(asking(100))
    await Promise.all([ledger.resize(reservation.id, 50 * MIB), ledger.release(reservation.id)])
    expect(saved.size).toBe(0)
    expect(reservedMib()).toBe(0)
  })

  it('knows after a restart what was promised before, with the owners', async () => {
    const home = await mkdtemp(path.join(tmpdir(), 'kosa8-ledger-'))
    onTestFinished(() => rm(home, { recursive: true }))
    const store = new ReservationStore(createPaths(home))
    const before = new Ledger({ budgetBytes: () => 1000 * MIB, memory: store })
    const reservation = await before.reserve(asking(700, 'sandbox box'))
    await before.release((await before.reserve(asking(100))).id)
    const after = new Ledger({ budgetBytes: () => 1000 * MIB, memory: store }, await store.list())
    expect(after.status().reservations).toEqual([reservation])
    expect(reservation).toMatchObject({ holder: 'sandbox box', owner })
    expect(await after.tryReserve(asking(301))).toMatchObject({ admitted: false, reason: 'noRoom' })
    await after.release(reservation.id)
    expect(await store.list()).toEqual([])
  })
})
