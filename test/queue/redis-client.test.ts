import { expect, it } from 'vitest'
import { explainRefusal } from '../../src/queue/redis-client.js'

const own = { socketPath: '/home/redis.sock' }
const external = { url: 'redis://:secret@queue.example' }
const full = new Error('MISCONF Errors writing to the AOF file: No space left on device')

it.each([
  ['our own Redis that has no room is a full disk, which is waited for', own, full, 'DISK_FULL', /^the queue's Redis at \/home\/redis\.sock refuses to write: MISCONF/],
  ['another one that has no room cannot be used', external, full, 'QUEUE_UNREACHABLE', /^the queue's Redis at redis:\/\/queue\.example refuses to write: MISCONF/],
  ['one that ends under a command cannot be used', external, new Error('Command aborted due to connection close'), 'QUEUE_UNREACHABLE', /queue\.example does not answer/],
] as const)('%s', (_, address, thrown, code, message) => {
  expect(explainRefusal(address, thrown)).toMatchObject({ code, message: expect.stringMatching(message) as string })
})

it('any other failure stays what it is', () => {
  const other = new Error('WRONGTYPE Operation against a key')
  expect(explainRefusal(own, other)).toBe(other)
})
