import { expect, test } from 'vitest'
import { renderProgressLine } from '../../src/report/progress-line.js'
import { renderRunsList } from '../../src/report/runs-list.js'

const at = '2026-01-01T10:20:30.000Z'

test('each event of a run is one plain line, whatever it says', () => {
  expect(renderProgressLine({ seq: 1, at, type: 'run-phase', phase: 'running', message: '3 trials' })).toBe('10:20:30 running: 3 trials')
  expect(renderProgressLine({ seq: 2, at, type: 'trial-phase', label: 'x', repeat: 1, phase: 'waiting', message: 'needs 310 MiB, 120 MiB free' }))
    .toBe('10:20:30 x #1: waiting: needs 310 MiB, 120 MiB free')
  expect(renderProgressLine({ seq: 3, at, type: 'trial-end', label: 'x', repeat: 1, state: 'failed', summary: 'a\n\u001b[31mb' }))
    .toBe('10:20:30 x #1: failed: a␊␛[31mb')
  expect(renderProgressLine({ seq: 4, at, type: 'run-end', phase: 'completed' })).toBe('10:20:30 run completed')
})

test('output of trials has no line of its own', () => {
  expect(renderProgressLine({ seq: 1, at, type: 'trial-output', label: 'x', repeat: 1, stream: 'stdout', text: 'hello' })).toBeNull()
})

test('the list of runs has one line per run, and says when there is none', () => {
  const run = { id: 'r1', createdAt: at, phase: 'completed' as const, repository: '/home/dev/shop', approaches: ['a', 'b'], winner: 'a' }
  expect(renderRunsList([run, { ...run, id: 'r2', winner: null, phase: 'running' }])).toBe([
    'run  started           state      winner  approaches  repository',
    'r1   2026-01-01 10:20  completed  a       a, b        /home/dev/shop',
    'r2   2026-01-01 10:20  running    –       a, b        /home/dev/shop', '',
  ].join('\n'))
  expect(renderRunsList([])).toBe('no runs yet\n')
})
