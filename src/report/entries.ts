/**
 * A trial as a list of checks, for the formats of test reports (JUnit, CTRF).
 */
import type { TrialResult } from '../model/run.js'

/** One check of a trial. */
export interface ReportEntry {
  name: string
  status: 'passed' | 'failed' | 'skipped'
  message: string
}

/** The verdict first, then every test that changed or still fails. Unscored is skipped: nothing was found out. */
export function entriesOf({ verdict, reasons, tests }: TrialResult): ReportEntry[] {
  const status = { better: 'passed', same: 'passed', worse: 'failed', unscored: 'skipped' } as const
  const each = (names: string[], entryStatus: ReportEntry['status'], message: string): ReportEntry[] =>
    names.map((name) => ({ name, status: entryStatus, message }))
  return [
    { name: 'verdict', status: status[verdict], message: `${verdict}: ${reasons.join('; ')}` },
    ...each(tests.fixed, 'passed', 'fixed'),
    ...each(tests.regressed, 'failed', 'passed in the baseline'),
    ...each(tests.missing, 'failed', 'missing: it is in the baseline'),
    ...each(tests.stillFailing, 'failed', 'fails as in the baseline'),
    ...each(tests.flaky, 'skipped', 'flaky'),
  ]
}
