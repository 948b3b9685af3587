/**
 * What earlier trials needed: the input of the memory prediction.
 *
 * Owns: reading peaks of private memory from stored records. Bounded: only the last few runs count.
 */
import type { RunId } from '../model/ids.js'
import type { TrialRecord } from '../model/run.js'
import type { RunStore } from '../store/run-store.js'

/** Runs of the same repository that are looked at. */
const RUNS_MAX = 5

/** Peaks of private memory from the store. */
export class PeakHistory {
  private readonly earlier = new Map<RunId, Promise<Map<string, number[]>>>()

  constructor(private readonly runs: RunStore) {}

  /** Peaks in bytes: of this approach in earlier runs of the same repository, and of this run's ended trials. */
  async of(run: RunId, label: string): Promise<{ history: number[]; runPeaks: number[] }> {
    let known = this.earlier.get(run)
    if (known === undefined) {
      known = this.readEarlier(run)
      this.earlier.set(run, known)
    }
    return {
      history: (await known).get(label) ?? [],
      runPeaks: peaksOf(await this.runs.readTrialRecords(run)),
    }
  }

  private async readEarlier(run: RunId): Promise<Map<string, number[]>> {
    const { repository } = await this.runs.readRequest(run)
    const same = (await this.runs.listRuns()).filter((other) => other.repository === repository && other.id !== run).slice(-RUNS_MAX)
    const peaks = new Map<string, number[]>()
    for (const { id } of same) {
      for (const record of await this.runs.readTrialRecords(id)) {
        peaks.set(record.label, [...peaks.get(record.label) ?? [], ...peaksOf([record])])
      }
    }
    return peaks
  }
}

function peaksOf(records: TrialRecord[]): number[] {
  return records.map(({ memory }) => memory.peakPrivateBytes).filter((bytes) => bytes !== null)
}
