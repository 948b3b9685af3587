/**
 * Threads of our own: a module beside its caller's event loop, from the build as from sources.
 */
import { Worker, type WorkerOptions } from 'node:worker_threads'

/**
 * Starts a thread whose entry is a module of ours.
 * @param entry URL of the module without its extension, e.g. `new URL('./parse-worker', import.meta.url)`
 */
export function startThread(entry: URL, options: WorkerOptions): Worker {
  if (import.meta.url.endsWith('.js')) return new Worker(new URL(`${entry.href}.js`), options)
  // From sources, as the tests run: a thread of Node 20 reads no TypeScript by itself.
  const jiti = JSON.stringify(import.meta.resolve('jiti'))
  const source = JSON.stringify(`${entry.href}.ts`)
  const code = `import(${jiti}).then((module) => module.createJiti(${source}).import(${source}))`
  return new Worker(code, { ...options, eval: true })
}
