/** "Did you mean …": the nearest of some words to a mistyped one. */

/** The candidate with the fewest edits to `word`, if it is near enough to be a slip; else null. */
export function findNearest(word: string, candidates: readonly string[]): string | null {
  let best: { candidate: string; distance: number } | null = null
  for (const candidate of candidates) {
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase())
    if (best === null || distance < best.distance) best = { candidate, distance }
  }
  return best !== null && best.distance <= Math.max(1, Math.ceil(word.length / 3)) ? best.candidate : null
}

/** Insertions, deletions, replacements and swaps of neighbours between two words. */
function editDistance(a: string, b: string): number {
  let beforeLast: number[] = []
  let last = Array.from({ length: b.length + 1 }, (_, index) => index)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const replace = (last[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1)
      let cost = Math.min(replace, (last[j] as number) + 1, (row[j - 1] as number) + 1)
      const isSwap = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      if (isSwap) cost = Math.min(cost, (beforeLast[j - 2] as number) + 1)
      row.push(cost)
    }
    beforeLast = last
    last = row
  }
  return last[b.length] as number
}
