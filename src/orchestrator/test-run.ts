/**
 * Runs the test command in a clone and reads what it reported.
 *
 * Owns: putting aside report files of earlier runs, the limits, fetching the reports. What the reports
 * mean is decided in `results`; here nothing from the guest is looked at but names and sizes.
 */
import picomatch from 'picomatch'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { runInGuest } from '../guest/run-in-guest.js'
import type { GuestFileEntry, GuestSession } from '../guest/session.js'
import type { TestPlan } from '../model/run.js'
import type { TestRun } from '../model/tests.js'
import { parseInThread } from '../results/parse-in-thread.js'
import type { Sandbox } from '../sandbox/sandbox.js'
import { unattendedEnvironment } from './strategy-run.js'
import { GUEST_STATE_PATH, WORKSPACE_PATH } from './guest-workspace.js'
import type { TrialLog } from './trial-log.js'

/** Standard output of the test command that is kept for reading, bytes. */
const OUTPUT_BYTES_MAX = 32 * 1024 * 1024
const REPORT_FILES_MAX = 500
const REPORT_BYTES_MAX = 64 * 1024 * 1024
const REPORTS_BYTES_MAX = 256 * 1024 * 1024
const LISTED_FILES_MAX = 200_000

/** A file the tests wrote, as fetched from the guest. */
interface ReportFile {
  path: string
  content: Uint8Array
}

/** @throws the reason of `signal`, or an error of ours when the machine is lost. */
export async function runTests(sandbox: Sandbox, plan: TestPlan, log: TrialLog, signal: AbortSignal): Promise<TestRun> {
  const { session } = sandbox
  const staleReports = await putReportsAside(session, plan)
  log.line(`$ ${plan.run}`)
  const command = { argv: ['/bin/sh', '-c', plan.run], cwd: WORKSPACE_PATH, env: unattendedEnvironment(sandbox) }
  const result = await runInGuest(session, command, {
    outputBytesMax: OUTPUT_BYTES_MAX,
    timeoutMs: plan.timeoutMs,
    signal,
    onOutput: (chunk, stream) => log.add(stream, chunk),
  })
  signal.throwIfAborted()
  const unreadReports: string[] = []
  if (result.truncated && plan.results.length === 0) unreadReports.push(`only the first ${OUTPUT_BYTES_MAX} bytes of the test output were read`)
  const files = await fetchReports(session, plan, unreadReports)
  return parseInThread({
    files,
    unreadReports,
    stdout: result.stdout,
    exitCode: result.exit.code,
    signal: result.exit.signal,
    timedOut: result.timedOut,
    staleReports,
    resultsConfigured: plan.results.length > 0,
    workspace: WORKSPACE_PATH,
  })
}

/** A report of an earlier run must never be read as this run's: its time may lie, so it is moved away. */
async function putReportsAside(session: GuestSession, plan: TestPlan): Promise<string[]> {
  const stale = (await listReports(session, plan)).filter((entry) => entry.kind !== 'folder').map((entry) => entry.path)
  if (stale.length === 0) return []
  const script = 'mkdir -p "$0" && for file do mv -f -- "$file" "$0/$(date +%s%N)-${file##*/}" || exit 1; done'
  for (let start = 0; start < stale.length; start += 200) {
    const paths = stale.slice(start, start + 200).map((path) => `./${path}`)
    const result = await runInGuest(session, {
      argv: ['/bin/sh', '-c', script, `${GUEST_STATE_PATH}/stale`, ...paths], cwd: WORKSPACE_PATH,
    }, { outputBytesMax: 65_536, timeoutMs: 60_000 })
    if (result.exit.code !== 0) {
      throw new Kosa8Error('GUEST_COMMAND_FAILED', `old test reports could not be moved away: ${result.stderr.toString('utf8').slice(0, 500)}`)
    }
  }
  return stale
}

async function listReports(session: GuestSession, plan: TestPlan): Promise<GuestFileEntry[]> {
  if (plan.results.length === 0) return []
  const matches = picomatch(plan.results, { dot: true })
  const entries = await session.listFiles(WORKSPACE_PATH, { entriesMax: LISTED_FILES_MAX })
  return entries.filter((entry) => entry.kind !== 'truncated' && entry.kind !== 'folder' && matches(entry.path))
}

async function fetchReports(session: GuestSession, plan: TestPlan, unread: string[]): Promise<ReportFile[]> {
  const files: ReportFile[] = []
  let totalBytes = 0
  for (const entry of await listReports(session, plan)) {
    if (entry.kind !== 'file') {
      unread.push(`${entry.path} is not a regular file and was not read`)
    } else if (files.length >= REPORT_FILES_MAX || entry.sizeBytes > REPORT_BYTES_MAX || totalBytes + entry.sizeBytes > REPORTS_BYTES_MAX) {
      unread.push(`${entry.path} was not read: more report data than the limits allow`)
    } else {
      const content = await readReport(session, entry.path, unread)
      if (content === null) continue
      totalBytes += content.length
      files.push({ path: entry.path, content })
    }
  }
  return files
}

async function readReport(session: GuestSession, path: string, unread: string[]): Promise<Uint8Array | null> {
  const chunks: Buffer[] = []
  try {
    const stream = await session.readFile(`${WORKSPACE_PATH}/${path}`, { bytesMax: REPORT_BYTES_MAX })
    for await (const chunk of stream) chunks.push(chunk as Buffer)
  } catch (error) {
    if (!Kosa8Error.isInstance(error) || error.code === 'GUEST_UNREACHABLE') throw error
    unread.push(`${path} could not be read: ${error.message}`)
    return null
  }
  return Buffer.concat(chunks)
}
