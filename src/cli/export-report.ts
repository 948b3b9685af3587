/** Copies a run's results into a folder of the user's: `report.md`, `run.json` and the patches. */
import { createWriteStream } from 'node:fs'
import path from 'node:path'
import { pipeline } from 'node:stream/promises'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { RunDocument } from '../model/run.js'
import { renderReport } from '../report/registry.js'
import type { Kosa8Client } from '../sdk/client.js'
import { writeFileAtomic } from '../util/atomic-write.js'
import { makeFolder } from '../util/make-folder.js'

/** Mode of what is handed on to others. */
const SHARED_MODE = 0o644

/** Writes the files; those of the same name are replaced, others in the folder are left alone. */
export async function exportReport(client: Kosa8Client, document: RunDocument, folder: string): Promise<void> {
  try {
    await makeFolder(folder)
    await writeFileAtomic(path.join(folder, 'report.md'), renderReport('md', document), SHARED_MODE)
    await writeFileAtomic(path.join(folder, 'run.json'), renderReport('json', document), SHARED_MODE)
    for (const { diff } of document.trials) {
      if (diff !== null) await copyPatch(client, document.id, diff.patch, folder)
    }
  } catch (error) {
    if (Kosa8Error.isInstance(error)) throw error
    throw new Kosa8Error('USAGE', `the report cannot be written to ${folder}: ${error instanceof Error ? error.message : String(error)}`, {
      hint: `everything is kept in ${document.dir}`, cause: error,
    })
  }
}

async function copyPatch(client: Kosa8Client, run: string, relative: string, folder: string): Promise<void> {
  const target = path.join(folder, relative)
  if (!target.startsWith(path.join(folder, path.sep))) throw new Error(`the patch ${relative} lies outside the run's folder`)
  await makeFolder(path.dirname(target))
  await pipeline(await client.runs.file(run, relative), createWriteStream(target, { mode: SHARED_MODE }))
}
