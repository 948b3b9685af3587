/** Two connected byte channels inside this process; destroying one closes the other. */
import { Duplex } from 'node:stream'

/** Makes the pair. */
export function duplexPair(): [Duplex, Duplex] {
  const ends: Duplex[] = []
  const make = (other: number): Duplex => new Duplex({
    read: () => undefined,
    write: (chunk: Buffer, _encoding, callback) => {
      ends[other]?.push(chunk)
      callback()
    },
    destroy: (error, callback) => {
      ends[other]?.destroy()
      callback(error)
    },
  })
  ends.push(make(1), make(0))
  return ends as [Duplex, Duplex]
}
