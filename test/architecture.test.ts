/**
 * The import rules of the tree, written down as data and held.
 */
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'

const root = path.resolve(import.meta.dirname, '..')

/** What the files of a folder may import: folders of ours; `*` where a composition root may import anything. */
const RULES: Record<string, string[]> = {
  'src/errors': [],
  'src/util': ['src/errors'],
  'src/model': ['src/errors', 'src/util'],
  'src/config': ['src/model', 'src/errors', 'src/util'],
  'src/protocol': ['src/model', 'src/errors', 'src/util'],
  'src/hypervisor': ['src/model', 'src/errors', 'src/util'],
  'src/guest': ['src/model', 'src/errors', 'src/util'],
  'src/image': ['src/config', 'src/model', 'src/errors', 'src/util', 'src/hypervisor/driver'],
  'src/checkpoint': ['src/model', 'src/errors', 'src/util', 'src/hypervisor/driver'],
  'src/git': ['src/model', 'src/errors', 'src/util'],
  'src/results': ['src/model', 'src/errors', 'src/util'],
  'src/admission': ['src/model', 'src/errors', 'src/util'],
  'src/queue': ['src/model', 'src/errors', 'src/util'],
  'src/store': ['src/model', 'src/errors', 'src/util'],
  'src/egress': ['src/model', 'src/errors', 'src/util'],
  'src/compare': ['src/model', 'src/util'],
  'src/report': ['src/compare', 'src/model', 'src/util'],
  'src/sandbox': ['src/hypervisor/driver', 'src/guest', 'src/checkpoint', 'src/store', 'src/model', 'src/errors', 'src/util'],
  'src/orchestrator': [
    'src/sandbox', 'src/hypervisor/driver', 'src/guest', 'src/image', 'src/checkpoint', 'src/git', 'src/results', 'src/admission',
    'src/egress', 'src/queue', 'src/store', 'src/compare', 'src/report', 'src/protocol', 'src/model', 'src/errors', 'src/util',
  ],
  'src/daemon': [
    'src/orchestrator', 'src/sandbox', 'src/hypervisor', 'src/guest', 'src/image', 'src/checkpoint', 'src/git', 'src/admission',
    'src/queue', 'src/store', 'src/report', 'src/config', 'src/protocol', 'src/model', 'src/errors', 'src/util',
  ],
  'src/sdk': ['src/config', 'src/protocol', 'src/model', 'src/errors', 'src/util'],
  'src/mcp': ['src/sdk', 'src/config', 'src/report', 'src/protocol', 'src/model', 'src/errors', 'src/util'],
  'src/cli': ['src/mcp/serve-stdio', 'src/sdk', 'src/report', 'src/config', 'src/protocol', 'src/model', 'src/errors', 'src/util'],
  workers: [
    'src/orchestrator', 'src/sandbox', 'src/hypervisor', 'src/checkpoint', 'src/queue', 'src/store', 'src/config',
    'src/model', 'src/errors', 'src/util',
  ],
  strategies: ['src/model/strategy'],
}

/** Packages and built-in modules that only some folders or files may use. */
const RESERVED: Record<string, string[]> = {
  bullmq: ['src/queue/'],
  ioredis: ['src/queue/'],
  commander: ['src/cli/'],
  fastify: ['src/daemon/'],
  'node:child_process': ['src/util/spawn.ts'],
}

/** Folders that touch neither disk, network nor processes. */
const PURE = ['src/model', 'src/compare', 'src/report']
const IMPURE_MODULES = /^node:(fs|net|http|https|child_process|worker_threads|os)(\/|$)/

interface SourceFile { path: string; text: string; imports: { target: string; typeOnly: boolean }[] }

function sourceFiles(): SourceFile[] {
  return ['src', 'workers', 'strategies'].flatMap((top) => walk(top)).map((file) => {
    const text = readFileSync(path.join(root, file), 'utf8')
    return { path: file, text, imports: importsOf(file, text) }
  })
}

function walk(directory: string): string[] {
  return readdirSync(path.join(root, directory), { withFileTypes: true }).flatMap((entry) => {
    const file = `${directory}/${entry.name}`
    if (entry.isDirectory()) return walk(file)
    return entry.name.endsWith('.ts') ? [file] : []
  })
}

function importsOf(file: string, text: string): SourceFile['imports'] {
  const statements = text.matchAll(/^\s*(?:import|export)\s+(type\s+)?(?:[^'";]*?\sfrom\s+)?'([^']+)'/gm)
  const dynamic = text.matchAll(/\bimport\('([^']+)'\)/g)
  return [
    ...[...statements].map((match) => ({ target: resolveTarget(file, match[2] as string), typeOnly: match[1] !== undefined })),
    ...[...dynamic].map((match) => ({ target: resolveTarget(file, match[1] as string), typeOnly: false })),
  ]
}

function resolveTarget(file: string, specifier: string): string {
  if (!specifier.startsWith('.')) return specifier
  return path.posix.join(path.posix.dirname(file), specifier).replace(/\.js$/, '.ts')
}

function folderOf(file: string): string {
  const parts = file.split('/')
  return parts[0] === 'src' ? parts.slice(0, 2).join('/') : parts[0] as string
}

const files = sourceFiles()

describe('architecture', () => {
  it('every folder imports only what its rule allows', () => {
    const violations = files.flatMap((file) => {
      const own = folderOf(file.path)
      const allowed = RULES[own]
      if (allowed === undefined) return [`${file.path}: its folder has no rule`]
      return file.imports
        .filter(({ target }) => /^(src|workers|strategies)\//.test(target))
        .filter(({ target }) => folderOf(target) !== own && !allowed.some((rule) => target.startsWith(`${rule}/`) || target.startsWith(`${rule}.`)))
        .map(({ target }) => `${file.path} imports ${target}`)
    })
    expect(violations).toEqual([])
  })

  it('there is no import cycle between files', () => {
    const graph = new Map(files.map((file) => [file.path, file.imports.filter(({ typeOnly }) => !typeOnly).map(({ target }) => target)]))
    expect(findCycle(graph)).toBeNull()
  })

  it('packages with one home are imported there only', () => {
    const violations = files.flatMap((file) => file.imports
      .filter(({ target }) => RESERVED[target] !== undefined && !(RESERVED[target]).some((home) => file.path.startsWith(home)))
      .filter(({ target, typeOnly }) => !(target === 'node:child_process' && typeOnly))
      .map(({ target }) => `${file.path} imports ${target}`))
    expect(violations).toEqual([])
  })

  it('model, compare and report touch neither disk nor network nor processes', () => {
    const violations = files.filter((file) => PURE.includes(folderOf(file.path)))
      .flatMap((file) => file.imports.filter(({ target }) => IMPURE_MODULES.test(target)).map(({ target }) => `${file.path} imports ${target}`))
    expect(violations).toEqual([])
  })

  it('only configuration reads the environment, only entry files end the process', () => {
    const reads = files.filter((file) => /\bprocess\.env\b/.test(stripComments(file.text)) && folderOf(file.path) !== 'src/config')
    const exits = files.filter((file) => /\bprocess\.exit\b/.test(stripComments(file.text)) && !/(^workers\/|\/main\.ts$)/.test(file.path))
    expect(reads.map(({ path: file }) => file)).toEqual([])
    expect(exits.map(({ path: file }) => file)).toEqual([])
  })

  it('every file introduces itself', () => {
    const silent = files.filter((file) => !/^(#!.*\n)?\/\*\*/.test(file.text)).map(({ path: file }) => file)
    expect(silent).toEqual([])
  })
})

function stripComments(text: string): string {
  return text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/\/\/.*$/gm, '')
}

function findCycle(graph: Map<string, string[]>): string[] | null {
  const state = new Map<string, 'open' | 'done'>()
  const visit = (node: string, trail: string[]): string[] | null => {
    if (state.get(node) === 'open') return [...trail.slice(trail.indexOf(node)), node]
    if (state.get(node) === 'done') return null
    state.set(node, 'open')
    for (const next of graph.get(node) ?? []) {
      const cycle = graph.has(next) ? visit(next, [...trail, node]) : null
      if (cycle !== null) return cycle
    }
    state.set(node, 'done')
    return null
  }
  for (const node of graph.keys()) {
    const cycle = visit(node, [])
    if (cycle !== null) return cycle
  }
  return null
}
