/**
 * Holds the documentation to what is there: links, flags, error codes, configuration, fields, files.
 */
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import path from 'node:path'
import ts from 'typescript'
import { describe, expect, it } from 'vitest'
import type { z } from 'zod'
import { readSettings } from '../src/config/environment.js'
import { parseProjectFile } from '../src/config/project-file.js'
import { formatJsonSchema, projectSchema } from '../src/config/project-schema.js'
import { ERROR_CODES } from '../src/errors/codes.js'
import { baselineTestsSchema, runDocumentSchema, trialResultSchema } from '../src/model/run.js'
import { trialDiffSchema } from '../src/model/diff.js'
import { trialTestsSchema } from '../src/model/tests.js'
import { startCli } from './cli/run-cli.js'

const root = path.resolve(import.meta.dirname, '..')
const pages = ['README.md', 'ARCHITECTURE.md', 'CHANGELOG.md', ...readdirSync(path.join(root, 'docs'))
  .filter((name) => name.endsWith('.md')).map((name) => `docs/${name}`)]
const textOf = (page: string): string => readFileSync(path.join(root, page), 'utf8')

/** Text of the fenced blocks of one language. */
function blocksOf(page: string, language: string): string[] {
  return [...textOf(page).matchAll(new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\`$`, 'gms'))].map((match) => match[1] as string)
}

/** Anchor that a heading gets, as GitHub makes it. */
function anchorsOf(page: string): string[] {
  return [...textOf(page).matchAll(/^#+ (.+)$/gm)]
    .map((match) => (match[1] as string).toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, '').replaceAll(' ', '-'))
}

async function helpOf(...verb: string[]): Promise<string> {
  const { status, stdout } = await startCli([...verb, '--help'], { settings: readSettings({ HOME: '/nonexistent' }) }).ended
  expect(status).toBe(0)
  return stdout
}

/** Help of a verb and of the verbs below it. */
async function wholeHelpOf(verb: string): Promise<string> {
  const help = await helpOf(verb)
  return [help, ...await Promise.all(verbsIn(help).map((each) => helpOf(verb, each)))].join('\n')
}

/** Verbs that help lists. */
function verbsIn(help: string): string[] {
  return [...(help.split('Commands:')[1] ?? '').matchAll(/^ {2}([a-z]+)\b/gm)]
    .map((match) => match[1] as string).filter((verb) => verb !== 'help')
}

const pagesWithLinks = pages.filter((page) => /\]\([^)]+\)/.test(textOf(page)))

describe.each(pagesWithLinks)('%s', (page) => {
  it('links only to files and headings that are there', () => {
    const links = [...textOf(page).matchAll(/\]\(([^)\s]+)\)/g)].map((match) => match[1] as string)
    const broken = links.filter((link) => !/^https?:/.test(link)).filter((link) => {
      const [file = '', anchor] = link.split('#')
      const target = file === '' ? page : path.join(path.dirname(page), file)
      if (!existsSync(path.join(root, target))) return true
      return anchor !== undefined && !anchorsOf(target).includes(anchor)
    })
    expect(broken).toEqual([])
  })
})

describe('commands in the documentation', () => {
  it('name only verbs and flags that help knows', async () => {
    const verbs = verbsIn(await helpOf())
    const helps = new Map<string, string>()
    for (const verb of verbs) helps.set(verb, await wholeHelpOf(verb))
    const unknown = pages.flatMap((page) => commandsOf(page).flatMap(({ verb, flags }) => {
      const help = helps.get(verb)
      if (help === undefined) return [`${page}: kosa8 ${verb}`]
      return flags.filter((flag) => !help.includes(flag)).map((flag) => `${page}: kosa8 ${verb} ${flag}`)
    }))
    expect(unknown).toEqual([])
  })

  it('name only flags that some verb has', async () => {
    const verbs = verbsIn(await helpOf())
    const all = (await Promise.all(verbs.map((verb) => wholeHelpOf(verb)))).join('\n')
    const named = new Set(pages.flatMap((page) => [...textOf(page).matchAll(/`(--[a-z][a-z-]*)/g)].map((match) => match[1] as string)))
    expect([...named].filter((flag) => !all.includes(flag))).toEqual([])
  })
})

/** `kosa8 …` in shell blocks and code spans, with continued lines; what follows `--` is somebody else's. */
function commandsOf(page: string): { verb: string; flags: string[] }[] {
  const texts = [...blocksOf(page, 'sh'), ...[...textOf(page).matchAll(/`(kosa8 [^`]+)`/g)].map((match) => match[1] as string)]
  return texts.flatMap((text) => text.replaceAll('\\\n', ' ').split('\n')).flatMap((line) => {
    const match = /(?:^|[|;&] *)(?:\$ )?kosa8 ([a-z]+)\b(.*)$/.exec(line)
    if (match === null) return []
    const own = (match[2] as string).split(' -- ')[0]?.split(/ [#|>] ?/)[0] ?? ''
    return [{ verb: match[1] as string, flags: [...own.matchAll(/(?<= )--[a-z][a-z-]*/g)].map(([flag]) => flag) }]
  })
}

describe('troubleshooting', () => {
  it('has every error code, under the exit status it leads to', () => {
    const sections = textOf('docs/troubleshooting.md').split(/^## Status (\d+).*$/m).slice(1)
    const documented: Record<string, number> = {}
    for (let index = 0; index < sections.length; index += 2) {
      for (const [, code] of (sections[index + 1] as string).matchAll(/^\| `([A-Z_]+)` \|/gm)) documented[code as string] = Number(sections[index])
    }
    expect(documented).toEqual(ERROR_CODES)
  })
})

describe('configuration', () => {
  const examples = ['README.md', 'docs/configuration.md', 'docs/approaches-and-strategies.md']
    .flatMap((page) => blocksOf(page, 'yaml').map((text, index) => ({ name: `${page} ${index + 1}`, text })))

  it.each(examples)('in $name is valid', ({ text }) => {
    expect(() => parseProjectFile(text)).not.toThrow()
  })

  it('page names every key, and no other', () => {
    const rows = [...textOf('docs/configuration.md').split('## Flags')[0]!.matchAll(/^\| `([a-z.]+)` \|/gm)].map((match) => match[1])
    const test = projectSchema.shape.test.unwrap().options[1].shape
    expect(rows.sort()).toEqual([...Object.keys(projectSchema.shape), ...Object.keys(test).map((key) => `test.${key}`)].sort())
  })

  it('page names every environment variable that is read', () => {
    const source = textOf('src/config/environment.ts')
    const read = new Set([...source.matchAll(/'([A-Z][A-Z0-9_]{1,})'/g)].map((match) => match[1] as string).filter((name) => name !== 'CONFIG_INVALID'))
    const page = textOf('docs/configuration.md')
    expect([...read].filter((name) => !page.includes(`\`${name}\``))).toEqual([])
  })

  it('schema is the one the code checks with', () => {
    expect(textOf('docs/kosa8.schema.json')).toBe(formatJsonSchema())
  })
})

describe('the page of the result document', () => {
  it.each([
    ['The run', runDocumentSchema], ['A trial', trialResultSchema], ['diff', trialDiffSchema], ['tests', trialTestsSchema],
    ['baseline.tests', baselineTestsSchema],
  ] as [string, z.ZodObject][])('names every field of %s', (title, schema) => {
    const section = textOf('docs/result-document.md').split(/^## /m).find((text) => text.startsWith(`${title}\n`)) ?? ''
    expect(Object.keys(schema.shape).filter((field) => !section.includes(`\`${field}\``))).toEqual([])
  })
})

describe('programs on the page of the SDK', () => {
  it('use it as its types say', () => {
    const programs = new Map(blocksOf('docs/sdk.md', 'js').map((text, index) => [path.join(root, `docs/sdk-${index + 1}.mjs`), text]))
    const options: ts.CompilerOptions = {
      allowJs: true, checkJs: true, noEmit: true, strict: true, noImplicitAny: false, skipLibCheck: true, types: ['node'],
      target: ts.ScriptTarget.ES2023, module: ts.ModuleKind.NodeNext, paths: { '@kosa8/sdk': [path.join(root, 'src/sdk/index.ts')] },
    }
    const host = ts.createCompilerHost(options)
    host.fileExists = (file) => programs.has(file) || ts.sys.fileExists(file)
    host.readFile = (file) => programs.get(file) ?? ts.sys.readFile(file)
    const program = ts.createProgram([...programs.keys()], options, host)
    const wrong = [...programs.keys()].flatMap((file) => ts.getPreEmitDiagnostics(program, program.getSourceFile(file)))
    expect(wrong.map(({ file, messageText }) => `${path.basename(file?.fileName ?? '')}: ${ts.flattenDiagnosticMessageText(messageText, ' ')}`)).toEqual([])
    expect(programs.size).toBeGreaterThan(0)
  })
})

describe('files', () => {
  it('of this repository that the documentation names are there', () => {
    const named = pages.filter((page) => page !== 'docs/approaches-and-strategies.md' && page !== 'docs/ci.md').flatMap((page) =>
      [...textOf(page).matchAll(/`((?:src|docs|examples|test|bench|guest|workers|strategies)\/[\w./-]*)`/g)].map((match) => `${page}: ${match[1]}`))
    expect(named.filter((entry) => !existsSync(path.join(root, entry.split(': ')[1] as string)))).toEqual([])
  })
})
