/**
 * Which kernel modules an image needs, in the order in which they can be loaded.
 *
 * Owns: reading what a module depends on (its `.modinfo` section, as depmod does) and ordering.
 * Does not own: loading, which the guest's agent does. Called by `build.ts`.
 */
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { Kosa8Error } from '../errors/kosa8-error.js'

/** One module; `name` has underscores whatever its file is called. */
export interface KernelModule {
  name: string
  file: string
}

/**
 * The wanted modules and all they depend on, each after its dependencies. A module that the kernel
 * has built in (it stands in `modules.builtin`) is left out.
 * @param folder searched with its sub-folders for `*.ko` files
 * @throws Kosa8Error IMAGE_BUILD_FAILED when a module is neither there nor built in.
 */
export async function orderModules(folder: string, wanted: string[]): Promise<KernelModule[]> {
  const files = await findModules(folder)
  const ordered = new Map<string, KernelModule>()
  const add = async (name: string, chain: string[]): Promise<void> => {
    if (ordered.has(name) || files.builtIn.has(name)) return
    const file = files.modules.get(name)
    if (file === undefined || chain.includes(name)) {
      throw new Kosa8Error('IMAGE_BUILD_FAILED', file === undefined
        ? `the kernel has no module ${name}${chain.length > 0 ? ` (needed by ${chain.at(-1)})` : ''}`
        : `the kernel modules ${[...chain, name].join(' → ')} need each other`)
    }
    for (const dependency of readDependencies(await readFile(file))) await add(dependency, [...chain, name])
    ordered.set(name, { name, file })
  }
  for (const name of wanted) await add(normaliseName(name), [])
  return [...ordered.values()]
}

async function findModules(folder: string): Promise<{ modules: Map<string, string>, builtIn: Set<string> }> {
  const modules = new Map<string, string>()
  const builtIn = new Set<string>()
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    const file = path.join(entry.parentPath, entry.name)
    if (entry.name.endsWith('.ko')) modules.set(normaliseName(path.basename(entry.name, '.ko')), file)
    if (entry.name === 'modules.builtin') {
      const lines = (await readFile(file, 'utf8')).split('\n').filter((line) => line !== '')
      for (const line of lines) builtIn.add(normaliseName(path.basename(line, '.ko')))
    }
  }
  return { modules, builtIn }
}

function normaliseName(name: string): string {
  return name.replaceAll('-', '_')
}

/** Names in the `depends=` entry of a module's `.modinfo`, a list of NUL-ended `key=value` texts. */
function readDependencies(module: Buffer): string[] {
  const start = module.indexOf('\0depends=')
  if (start < 0) return []
  const from = start + '\0depends='.length
  const names = module.toString('latin1', from, module.indexOf(0, from))
  return names.split(',').filter((name) => name !== '').map(normaliseName)
}
