/**
 * From trials to approaches: repeats joined, approaches in order, a winner or none.
 *
 * Repeats of one approach are joined by their worst: the worst verdict of those that were scored, the fewest
 * fixed, the most broken and still failing, the largest diff. What flakiness explains has been taken out before.
 * Approaches are ordered by verdict, clean completion, more fixed, fewer broken (regressed and missing), fewer
 * still failing, fewer changed lines. Equal in all of these is a tie, said to be one and shown in the order of the
 * plan. The winner is the first if it is better, clean and not tied with the second.
 */
import type { TrialResult, Verdict } from '../model/run.js'
import { countOf } from '../util/count-of.js'
import { listSome } from './counts.js'

/** A trial's result and whether it came to an end that lets it win. */
export interface RankedTrial {
  result: TrialResult
  isClean: boolean
}

interface Standing {
  label: string
  verdict: Verdict
  isClean: boolean
  fixed: number
  broken: number
  stillFailing: number
  lines: number
  trees: Set<string>
  verdicts: Verdict[]
}

/** The order of the approaches. */
export interface Ranking {
  ranking: string[]
  winner: string | null
  reasons: string[]
}

const VERDICTS: Verdict[] = ['better', 'same', 'worse', 'unscored']

/** Ranks the approaches of a run. @param labels every label, in the order of the plan */
export function rankApproaches(labels: string[], trials: RankedTrial[]): Ranking {
  const standings = labels
    .map((label) => join(label, trials.filter((trial) => trial.result.label === label)))
    .sort(compareStandings)
  const [first, second] = standings
  const isTied = first !== undefined && second !== undefined && compareStandings(first, second) === 0
  const wins = first !== undefined && first.verdict === 'better' && first.isClean && !isTied
  return {
    ranking: standings.map((standing) => standing.label),
    winner: wins ? first.label : null,
    reasons: [...headline(standings, wins, isTied), ...tieRemarks(standings), ...standings.flatMap(repeatRemark)],
  }
}

function join(label: string, trials: RankedTrial[]): Standing {
  const scored = trials.filter((trial) => trial.result.verdict !== 'unscored')
  const most = (measure: (result: TrialResult) => number): number =>
    Math.max(0, ...scored.map((trial) => measure(trial.result)))
  const worst = Math.max(-1, ...scored.map((trial) => VERDICTS.indexOf(trial.result.verdict)))
  return {
    label,
    verdict: VERDICTS[worst] ?? 'unscored',
    isClean: scored.length > 0 && scored.every((trial) => trial.isClean),
    fixed: scored.length === 0 ? 0 : Math.min(...scored.map((trial) => trial.result.tests.fixed.length)),
    broken: most(({ tests }) => tests.regressed.length + tests.missing.length),
    stillFailing: most(({ tests }) => tests.stillFailing.length),
    lines: most(({ diff }) => diff === null ? 0 : diff.insertions + diff.deletions),
    trees: new Set(trials.map((trial) => trial.result.diff?.tree ?? '')),
    verdicts: trials.map((trial) => trial.result.verdict),
  }
}

function compareStandings(a: Standing, b: Standing): number {
  return VERDICTS.indexOf(a.verdict) - VERDICTS.indexOf(b.verdict)
    || Number(b.isClean) - Number(a.isClean)
    || b.fixed - a.fixed
    || a.broken - b.broken
    || a.stillFailing - b.stillFailing
    || a.lines - b.lines
}

function headline(standings: Standing[], wins: boolean, isTied: boolean): string[] {
  const [first] = standings
  if (first === undefined) return ['no approach was tried']
  if (wins) return [`${first.label} wins: ${describe(first)}`]
  if (first.verdict === 'unscored') return ['no winner: no approach could be scored']
  if (first.verdict !== 'better') return ['no winner: no approach is better than the baseline']
  if (!first.isClean) return [`no winner: ${first.label} is better but did not come to a clean end`]
  const tied = standings.filter((standing) => isTied && compareStandings(standing, first) === 0)
  return [`no winner: ${joinNames(tied)} are tied (${describe(first)})`]
}

function describe(standing: Standing): string {
  const parts = [
    standing.fixed > 0 ? `fixes ${countOf(standing.fixed, 'test')}` : 'makes tests run that did not',
    'breaks none',
  ]
  if (standing.stillFailing > 0) parts.push(`leaves ${standing.stillFailing} failing`)
  parts.push(`${countOf(standing.lines, 'changed line')}`)
  return parts.join(', ')
}

/** One sentence for each group of equals that the headline has not named, unscored ones aside. */
function tieRemarks(standings: Standing[]): string[] {
  const groups: Standing[][] = []
  for (const standing of standings) {
    const group = groups.at(-1)
    if (group?.[0] !== undefined && compareStandings(group[0], standing) === 0) group.push(standing)
    else groups.push([standing])
  }
  return groups.filter((group) => group.length > 1 && group[0]?.verdict !== 'unscored').map((group) => {
    const trees = new Set(group.flatMap((standing) => [...standing.trees]))
    const why = trees.size === 1 && !trees.has('') ? ': they made the same change' : ''
    return `${joinNames(group)} are tied${why}`
  })
}

function repeatRemark({ label, verdict, verdicts }: Standing): string[] {
  const kinds = VERDICTS.filter((kind) => verdicts.includes(kind))
  if (kinds.length < 2) return []
  const counts = kinds.map((kind) => `${kind} ${verdicts.filter((each) => each === kind).length}`)
  return [`${label}: its ${verdicts.length} repeats differ (${counts.join(', ')}); counted as ${verdict}`]
}

function joinNames(group: Standing[]): string {
  const names = group.map((standing) => standing.label)
  if (names.length > 4) return listSome(names)
  return names.length < 2 ? names.join('') : `${names.slice(0, -1).join(', ')} and ${names.at(-1) ?? ''}`
}
