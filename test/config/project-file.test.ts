import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { parseProjectFile, readProjectFile } from '../../src/config/project-file.js'
import { SCHEMA_FILE, formatJsonSchema } from '../../src/config/project-schema.js'
import { findPackageRoot } from '../../src/util/package-root.js'
import { temporaryFolder } from '../daemon-server/serve.js'

const COMPLETE = `
image: node
mem: 2G
cpus: 2
egress: allow
setup: npm ci
timeout: 45m
test:
  run: npm test
  results: [reports/*.xml]
  timeout: 90s
  files: spec/**
approaches:
  quick: { strategy: script, file: fix.sh }
  tune: { strategy: command, run: make tune, level: 3 }
matrix:
  depth: [2, 4]
repeats: 3
`
/** Nine references to a part of nine references to …: 9^9 items from 500 bytes. */
const ALIAS_BOMB = ['a: &a0 [x, x, x, x, x, x, x, x, x]', ...Array.from({ length: 9 }, (_, level) =>
  `b${level}: &a${level + 1} [${Array(9).fill(`*a${level}`).join(', ')}]`)].join('\n')

describe('kosa8.yaml', () => {
  it('may set every key', () => {
    expect(parseProjectFile(COMPLETE)).toMatchObject({ image: 'node', mem: '2G', test: { timeout: '90s' }, matrix: { depth: [2, 4] }, repeats: 3 })
  })

  it('may be empty, a comment, or absent', async () => {
    expect(parseProjectFile('')).toEqual({})
    expect(parseProjectFile('# nothing yet\n')).toEqual({})
    expect(await readProjectFile(await temporaryFolder())).toEqual({})
  })

  it.each([
    ['an unknown key', 'image: node\nsetpu: npm ci\n', 'kosa8.yaml, line 2: unknown key setpu', 'did you mean setup?'],
    ['an unknown key further in', 'test:\n  run: x\n  timeot: 3m\n', 'kosa8.yaml, line 3: unknown key test.timeot', 'did you mean timeout?'],
    ['a key like no other', 'zzzzzzzz: 1\n', 'kosa8.yaml, line 1: unknown key zzzzzzzz',
      'known keys are image, mem, cpus, disk, pids, egress, setup, test, timeout, approaches, matrix, repeats'],
    ['a size without a unit', 'cpus: 1\nmem: 512x\n', 'kosa8.yaml, line 2: mem: use a size such as "512M" or "2G"', undefined],
    ['a duration without a unit', 'test:\n  run: x\n  timeout: "30"\n', 'kosa8.yaml, line 3: test.timeout: use a duration such as "90s", "30m" or "1h30m"', undefined],
    ['a list with what is no host', 'egress: [registry.example, a/b]\n', 'kosa8.yaml, line 1: egress.1: "a/b" is no host: use a name, *.name, * or an address, each with or without :port', undefined],
    ['allow beside hosts', 'egress: [registry.example, allow]\n', 'kosa8.yaml, line 1: egress: deny and allow stand alone', undefined],
    ['deny in a list of hosts', 'egress: deny,registry.example\n', 'kosa8.yaml, line 1: egress: "deny" in a list of hosts: it stands alone', undefined],
    ['an approach without a strategy', 'approaches:\n  a: {}\n', 'kosa8.yaml, line 2: approaches.a.strategy is missing', undefined],
    ['a name no approach can have', 'approaches:\n  a/b: {strategy: script}\n', 'kosa8.yaml, line 2: approaches.a/b: use 1 to 64 letters, digits, dashes and underscores', undefined],
    ['a parameter name no variable can have', 'matrix:\n  a-b: [1]\n', 'kosa8.yaml, line 2: matrix.a-b: use a parameter name of letters, digits and underscores', undefined],
    ['a key given twice', 'mem: 1G\nmem: 2G\n', 'kosa8.yaml, line 2: Map keys must be unique', undefined],
    ['a tag', 'setup: !!js/function "1"\n', 'kosa8.yaml, line 1: Unresolved tag: tag:yaml.org,2002:js/function', undefined],
    ['a list', '- a\n', 'kosa8.yaml, line 1: the file: Invalid input: expected object, received array', undefined],
    ['aliases that multiply', ALIAS_BOMB, 'kosa8.yaml, line 1: Excessive alias count indicates a resource exhaustion attack', undefined],
  ])('with %s is refused with line and key', (_what, text, message, hint) => {
    expect(() => parseProjectFile(text)).toThrow(expect.objectContaining({ code: 'CONFIG_INVALID', message, hint }))
  })

  it('that is broken off is refused with its line', () => {
    expect(() => parseProjectFile('mem: 1G\ncpus: [1\n')).toThrow(/^kosa8\.yaml, line \d: /)
  })

  it('of more than a mebibyte is not read', async () => {
    const folder = await temporaryFolder()
    writeFileSync(path.join(folder, 'kosa8.yaml'), `# ${'x'.repeat(1024 * 1024)}`)
    await expect(readProjectFile(folder)).rejects.toMatchObject({ code: 'CONFIG_INVALID', message: 'kosa8.yaml has 1048578 bytes; at most 1048576 are read' })
  })

  it('has a published schema that is the one it is checked by', () => {
    const published = readFileSync(path.join(findPackageRoot(), SCHEMA_FILE), 'utf8')
    expect(published, `write it anew: formatJsonSchema() of src/config/project-schema.ts into ${SCHEMA_FILE}`).toBe(formatJsonSchema())
  })
})
