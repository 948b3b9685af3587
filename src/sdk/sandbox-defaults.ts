/** What a repository asks of a sandbox made with it. Callers: the command line and the MCP server. */
import path from 'node:path'
import { resolveProject } from '../config/project-defaults.js'
import { readProjectFile } from '../config/project-file.js'
import { findRepositoryRoot } from '../config/repository.js'
import type { CreateSandboxOptions } from './client.js'

/**
 * Shape of a sandbox by the kosa8.yaml of the repository `folder` lies in; empty without a folder.
 * @param cwd what a relative folder starts from
 * @throws REPOSITORY_INVALID, CONFIG_INVALID.
 */
export async function readSandboxDefaults(folder: string | undefined, cwd: string): Promise<Omit<CreateSandboxOptions, 'name'>> {
  if (folder === undefined) return {}
  const repository = await findRepositoryRoot(path.resolve(cwd, folder))
  const { image, memoryMib, cpus, diskMib, processesMax, egress } = await resolveProject(await readProjectFile(repository), repository)
  return {
    image, memMb: memoryMib, cpus, egress, repository,
    ...(diskMib === undefined ? {} : { diskMb: diskMib }),
    ...(processesMax === undefined ? {} : { maxProcesses: processesMax }),
  }
}
