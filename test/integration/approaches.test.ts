/**
 * Approaches as they are in the field: they hang, ask, leave processes behind, plant links, cheat on the tests.
 * One run has them all; each test looks at one.
 */
import { readFile, readdir } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { RunId } from '../../src/model/ids.js'
import { runDocumentSchema, type RunDocument, type TrialResult } from '../../src/model/run.js'
import { Kosa8, NOTHING_LEFT } from '../helpers/kosa8.js'

const CANARY = 'canary-7f3a91'

/** Writes a JUnit report, unless the workspace says it must stop before. */
const TEST = `if [ -e broken ]; then echo "cannot compile"; exit 2; fi
. ./add.sh
result() { if [ "$2" = "$3" ]; then echo "<testcase name='$1'/>"; else echo "<testcase name='$1'><failure message='$2'/></testcase>"; fi; }
mkdir -p out
if [ -e plant ]; then ln -s /proc/self/environ out/late.xml; mkfifo out/late-pipe.xml; fi
{ echo "<testsuite name='adder'>"; result adds "$(add 2 3)" 5; result hidden "$(add 20 22)" 42; echo "</testsuite>"; } > out/report.xml
`
const FILES = {
  'add.sh': 'add() { echo $(($1 - $2)); }\n',
  'test/run.sh': TEST,
  '.gitignore': 'out/\n',
  // A report of an earlier run lies in every clone, all green.
  'kosa8.yaml': `image: base
mem: 192M
timeout: 15s
setup: mkdir out && printf "<testsuite name='adder'><testcase name='adds'/><testcase name='hidden'/></testsuite>" > out/report.xml
test: {run: sh test/run.sh, results: [out/*.xml, reports/*.xml]}
`,
}
const MEND = "sed -i 's/$1 - $2/$1 + $2/' add.sh\n"
const APPROACHES = {
  stubborn: `${MEND}trap '' INT TERM HUP\nwhile :; do sleep 1000 & sleep 1; done\n`,
  asks: `${MEND}echo 'Proceed? [y/N]'; read answer || echo "no answer"; ( read line </dev/tty ) 2>&1 || echo "no terminal"; git log | cat >/dev/null; git log >/dev/null\n`,
  polite: 'echo "Shall I go on?"\n',
  leaves: `${MEND}sleep 3000 & setsid sh -c 'while :; do echo noise; sleep 1; done' & (sleep 0.05; echo late-line) &\n`,
  links: `${MEND}mkdir -p out; rm -rf out/* reports; ln -s / reports; ln -s /proc/self/environ out/env.xml; mkfifo out/pipe.xml; ln -s /etc/hostname hostname; touch plant\n`,
  weakens: "sed -i 's/ 5;/ -1;/; s/ 42;/ -2;/' test/run.sh\n",
  special: "echo 'add() { [ $1 = 2 ] && echo 5 || echo $(($1 - $2)); }' > add.sh\n",
  breaks: `${MEND}touch broken\n`,
}

let kosa8: Kosa8
let document: RunDocument
let logs: Record<string, string>
const trial = (label: string): TrialResult => document.trials.find((one) => one.label === label)!

beforeAll(async () => {
  kosa8 = await Kosa8.open()
  const repository = await kosa8.makeRepository('adder', FILES, APPROACHES)
  const { status, stdout, stderr } = await kosa8.type(
    ['fork', '--approaches', Object.keys(APPROACHES).join(','), '--parallel', '3', '--json'], { cwd: repository, env: { KOSA8_CANARY: CANARY } })
  expect(status, stderr).toBe(0)
  document = runDocumentSchema.parse(JSON.parse(stdout))
  logs = {}
  for (const { label, log } of document.trials) logs[label] = await readFile(path.join(document.dir, log!), 'utf8')
}, 400_000)

afterAll(() => kosa8.close())

describe('an approach that', () => {
  it('never ends is stopped from outside at its limit, and judged by what it had done', () => {
    expect(trial('stubborn')).toMatchObject({
      state: 'timedOut', exitCode: null, verdict: 'better', diff: { files: 1 }, tests: { fixed: ['adder › adds', 'adder › hidden'] },
    })
    expect(trial('stubborn').notes).toContain('stopped: limit')
  })

  it('asks for input gets none, and no terminal or pager keeps it waiting', () => {
    expect(trial('asks')).toMatchObject({ state: 'completed', verdict: 'better' })
    expect(logs['asks']).toContain('no answer')
    expect(logs['asks']).toContain('no terminal')
    expect(trial('asks').timingsMs['strategy']).toBeLessThan(15_000)
  })

  it('ends with a question and changes nothing is said to have asked', () => {
    expect(trial('polite')).toMatchObject({ state: 'completed', verdict: 'same', diff: { files: 0 } })
    expect(trial('polite').notes.join()).toContain('asked for input: Shall I go on?')
  })

  it('leaves processes behind has ended with its first one; they are stopped and named, late output is kept', () => {
    expect(trial('leaves')).toMatchObject({ state: 'completed', verdict: 'better' })
    expect(logs['leaves']).toContain('late-line')
    expect(trial('leaves').notes.join()).toMatch(/left \d processes running: .*sleep/)
  })

  it('plants links and pipes for reports has none of them followed (invariant 10)', async () => {
    expect(trial('links')).toMatchObject({ state: 'completed', diff: { files: 4 } })
    // A report that could not be read may have held a failure.
    expect(trial('links').verdict).not.toBe('better')
    const warnings = JSON.stringify(await readRecord('links'))
    for (const name of ['env', 'pipe']) expect(warnings).toContain(`out/${name}.xml is from before this run and was not read`)
    for (const name of ['late', 'late-pipe']) expect(warnings).toContain(`out/${name}.xml is not a regular file and was not read`)
    expect(await everythingOf(document.dir)).not.toContain(CANARY)
  })

  it('weakens the tests is judged by the original ones and named', () => {
    expect(trial('weakens')).toMatchObject({
      verdict: 'same', tests: { tampered: ['test/run.sh'], stillFailing: ['adder › adds', 'adder › hidden'] },
    })
    expect(trial('weakens').reasons.join()).toContain('test/run.sh')
  })

  it('answers the tested input only is plain from the test it does not know', () => {
    expect(trial('special')).toMatchObject({ tests: { fixed: ['adder › adds'], stillFailing: ['adder › hidden'] } })
  })

  it('keeps the tests from writing a report is not shown the green one of before', () => {
    expect(trial('breaks').tests).toMatchObject({ passed: 0, fixed: [] })
    expect(trial('breaks').verdict).not.toBe('better')
    expect(JSON.stringify(trial('breaks'))).toMatch(/no report|wrote no|no test/i)
  })

  it('is one of many leaves nothing behind (invariant 6)', async () => {
    expect(await kosa8.leftoversOnceTidy(document.id as RunId)).toEqual(NOTHING_LEFT)
  })
})

async function readRecord(label: string): Promise<unknown> {
  return JSON.parse(await readFile(path.join(document.dir, 'trials', label, '1', 'record.json'), 'utf8'))
}

async function everythingOf(folder: string): Promise<string> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const files = entries.filter((entry) => entry.isFile()).map((entry) => path.join(entry.parentPath, entry.name))
  return (await Promise.all(files.map((file) => readFile(file, 'latin1')))).join('\n')
}
