/**
 * A finished benchmark as a table for people and a file for machines.
 */
import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { findPackageRoot } from '../src/util/package-root.js'
import type { MachineFacts } from './machine-facts.js'
import { summarize, type Series } from './statistics.js'
import type { Target } from './targets.js'

/** Everything one benchmark found. */
export interface BenchmarkResult {
  benchmark: string
  startedAt: string
  /** How long all of it took, seconds. */
  tookS: number
  machine: MachineFacts
  series: Series[]
  targets: Target[]
}

/** The table: every series with its figures, then every target. */
export function renderTable({ machine, series, targets, tookS }: BenchmarkResult): string {
  const rows = series.map(({ label, unit, values }) => {
    const { n, p50, p95, max } = summarize(values)
    return [label, unit, String(n), ...[p50, p95, max].map(formatFigure)]
  })
  const verdicts = targets.map(({ claim, measured, promised, isMet }) => [claim, formatFigure(measured), promised, isMet ? 'met' : 'MISSED'])
  return [
    `${machine.processor}, ${machine.cores} cores, ${machine.memoryMib} MiB, Linux ${machine.kernel}, QEMU ${machine.qemu} `
      + `(${machine.accelerator}), Node ${machine.node}, load before ${machine.loadBefore.join(' ')}`,
    '', ...alignColumns([['what', 'unit', 'n', 'p50', 'p95', 'max'], ...rows]),
    '', ...alignColumns([['target (of medians)', 'measured', 'promised', ''], ...verdicts]),
    '', `took ${Math.round(tookS)} s`,
  ].join('\n')
}

/** Writes the result below bench/results and returns where. */
export async function writeResult(result: BenchmarkResult): Promise<string> {
  const folder = path.join(findPackageRoot(), 'bench', 'results')
  await mkdir(folder, { recursive: true })
  const stamp = result.startedAt.slice(0, 16).replaceAll(':', '')
  const file = path.join(folder, `${stamp}-${result.benchmark}.json`)
  const rounded = result.series.map((each) => ({
    label: each.label, unit: each.unit, ...mapValues(summarize(each.values)), values: each.values.map(round),
  }))
  await writeFile(file, `${JSON.stringify({ ...result, series: rounded }, (_, value: unknown) => flatten(value), 2).replace(FLAT_ARRAY, unquote)}\n`)
  return file
}

/** Arrays of numbers stay on one line: a result is to be read in a diff. */
const FLAT_ARRAY = /"\[[-\d.,e+]*\]"/g

function flatten(value: unknown): unknown {
  return Array.isArray(value) && value.every((each) => typeof each === 'number') ? `[${value.join(',')}]` : value
}

function unquote(text: string): string {
  return text.slice(1, -1).replaceAll(',', ', ')
}

function mapValues(figures: ReturnType<typeof summarize>): ReturnType<typeof summarize> {
  return { n: figures.n, p50: round(figures.p50), p95: round(figures.p95), max: round(figures.max) }
}

function round(value: number): number {
  return Number(value.toPrecision(4))
}

function formatFigure(value: number): string {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)
}

function alignColumns(rows: string[][]): string[] {
  const widths = rows[0]?.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0))) ?? []
  return rows.map((row) => row.map((cell, column) => (
    column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0)
  )).join('  ').trimEnd())
}
