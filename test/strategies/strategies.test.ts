import { describe, expect, it } from 'vitest'
import command from '../../strategies/command.js'
import patch from '../../strategies/patch.js'
import script from '../../strategies/script.js'
import { BUILTIN_STRATEGIES } from '../../src/config/approaches.js'
import type { Strategy } from '../../src/model/strategy.js'
import { createLocalClone } from './local-clone.js'

const PATCH = `diff --git a/file.txt b/file.txt
--- a/file.txt
+++ b/file.txt
@@ -1,3 +1,3 @@
 one
-two
+2
 three
diff --git a/new.txt b/new.txt
new file mode 100644
--- /dev/null
+++ b/new.txt
@@ -0,0 +1 @@
+trailing \t
`

async function run(strategy: Strategy, parameters: Record<string, unknown>) {
  strategy.validate?.(parameters)
  const clone = await createLocalClone(parameters)
  const outcome = await strategy.run(clone)
  const git = async (...args: string[]) => (await clone.exec(['git', ...args])).stdout
  return { clone, outcome, git }
}

describe('built-in strategies', () => {
  it('are the modules a plan can name', async () => {
    for (const name of BUILTIN_STRATEGIES) {
      const loaded = await import(`../../strategies/${name}.ts`) as { default: Strategy }
      expect(typeof loaded.default.run, name).toBe('function')
    }
  })
})

describe('the strategy script', () => {
  it('runs in the workspace, by its first line or with sh, and leaves itself out of the diff', async () => {
    const plain = await run(script, { content: 'echo "$PWD" && echo changed >> file.txt' })
    expect(plain.outcome).toEqual({ exitCode: 0 })
    expect(plain.clone.output).toBe(`${plain.clone.workspace}\n`)
    expect(await plain.git('status', '--porcelain')).toBe(' M file.txt\n')
    const perl = await run(script, { content: '#!/usr/bin/env perl\nprint "from perl @ARGV\\n"; exit 3;\n', args: ['a b', 7] })
    expect(perl.outcome).toEqual({ exitCode: 3 })
    expect(perl.clone.output).toBe('from perl a b 7\n')
  })

  it('tells the script what it is trying', async () => {
    const content = 'echo $KOSA8_APPROACH $KOSA8_REPEAT $KOSA8_PARAM_DEPTH $KOSA8_PARAM_BATCH_SIZE $OWN ${KOSA8_PARAM_CONTENT-none}'
    const { clone } = await run(script, { content, depth: 4, 'batch-size': 'big', env: { OWN: 'x' } })
    expect(clone.output).toBe('quick 2 4 big x none\n')
  })

  it.each([
    ['reads an answer', 'printf "Apply? "; read -r a || { echo "no answer"; exit 4; }', 4],
    ['starts a pager', 'git log; git log -p | ${PAGER:-less}', 0],
    ['opens an editor', 'git -c user.name=t -c user.email=t@example.invalid commit --amend; ${EDITOR:-vi} file.txt', 0],
    ['asks for a password', 'git -c credential.helper= ls-remote https://nobody@127.0.0.1:9/x.git && exit 1; exit 0', 0],
  ])('does not wait when the script %s', async (_what, content, exitCode) => {
    expect((await run(script, { content })).outcome.exitCode).toBe(exitCode)
  })

  it.each([
    [{}, 'content must be the text of the script'],
    [{ content: 'x', args: 'a' }, 'args must be a list of texts'],
    [{ content: 'x', env: { 'A B': '1' } }, 'env has the name "A B", which no variable can have'],
    [{ content: 'x', env: { A: {} } }, 'env.A must be a text'],
  ])('refuses %j', (parameters, message) => {
    expect(() => script.validate?.(parameters)).toThrow(message)
  })
})

describe('the strategy command', () => {
  it('runs a shell command with matrix values in its environment', async () => {
    const { clone, outcome } = await run(command, { run: 'echo $KOSA8_PARAM_LEVEL | tr 3 4; exit 5', level: 3 })
    expect(outcome).toEqual({ exitCode: 5 })
    expect(clone.output).toBe('4\n')
  })

  it('refuses to run nothing', () => {
    expect(() => command.validate?.({ run: ' ' })).toThrow('run must be a shell command')
  })
})

describe('the strategy patch', () => {
  it('applies a patch as it is and leaves the index alone', async () => {
    const { outcome, git, clone } = await run(patch, { content: PATCH })
    expect(outcome).toEqual({ exitCode: 0 })
    expect(await git('status', '--porcelain')).toBe(' M file.txt\n?? new.txt\n')
    expect(Buffer.from(await clone.readFile('new.txt')).toString()).toBe('trailing \t\n')
  })

  it('that does not apply changes nothing and says why', async () => {
    const { outcome, git } = await run(patch, { content: PATCH.replace('-two', '-zwei') })
    expect(outcome).toEqual({ exitCode: 1, notes: ['the patch does not apply: patch failed: file.txt:1'] })
    expect(await git('status', '--porcelain')).toBe('')
  })

  it('is not changed by the configuration of the repository it meets', async () => {
    const clone = await createLocalClone({ content: PATCH })
    await clone.exec(['git', 'config', 'apply.whitespace', 'fix'])
    await patch.run(clone)
    expect(Buffer.from(await clone.readFile('new.txt')).toString()).toBe('trailing \t\n')
  })

  it('of several lines that is no patch fails with a reason', async () => {
    const { outcome } = await run(patch, { content: 'hello\nworld\n' })
    expect(outcome.exitCode).not.toBe(0)
    expect(outcome.notes?.[0]).toMatch(/^the patch does not apply: No valid patches in input/)
  })
})
