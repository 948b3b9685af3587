/**
 * Git on a working tree that is not ours, with a git folder that is: nothing of the tree's own
 * configuration, hooks, attributes or index takes part.
 *
 * Owns: the environment, configuration and attributes of such a private git folder. Used in the guest
 * (the evidence folder) and on the host (scratch repositories), so that both see the same bytes.
 */

/** Attributes that switch every conversion off; `info/attributes` outranks any file in the tree. */
export const BYTE_WISE_ATTRIBUTES =
  '* -text -eol -crlf -filter -ident -working-tree-encoding !diff !merge !whitespace !conflict-marker-size\n'

const SETTINGS: readonly (readonly [string, string])[] = [
  ['core.hooksPath', '/dev/null'],
  ['core.fsmonitor', 'false'],
  ['core.attributesFile', '/dev/null'],
  ['core.autocrlf', 'false'],
  ['core.safecrlf', 'false'],
  ['core.fileMode', 'true'],
  ['core.symlinks', 'true'],
  ['core.ignoreCase', 'false'],
  ['core.precomposeUnicode', 'false'],
  ['core.quotePath', 'false'],
  ['core.untrackedCache', 'false'],
  ['core.splitIndex', 'false'],
  ['core.sparseCheckout', 'false'],
  ['core.logAllRefUpdates', 'false'],
  ['core.looseCompression', '1'],
  ['pack.threads', '1'],
  ['pack.windowMemory', '64m'],
  ['pack.deltaCacheSize', '16m'],
  ['gc.auto', '0'],
  ['maintenance.auto', 'false'],
  ['protocol.allow', 'never'],
]

/** Text of the `config` file of a private git folder. */
export function privateConfig(objectFormat: string): string {
  return objectFormat === 'sha1'
    ? '[core]\n\trepositoryformatversion = 0\n\tbare = false\n'
    : `[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectformat = ${objectFormat}\n`
}

/** Environment that makes git look at nothing but the folders named here. Settings given win over ours. */
export function privateEnvironment(
  place: { gitDir: string; workTree?: string; index?: string }, settings: Record<string, string> = {},
): Record<string, string> {
  const environment: Record<string, string> = { ...ISOLATION, GIT_DIR: place.gitDir, HOME: '/nonexistent' }
  if (place.workTree !== undefined) environment['GIT_WORK_TREE'] = place.workTree
  if (place.index !== undefined) environment['GIT_INDEX_FILE'] = place.index
  const all = [...SETTINGS, ...Object.entries(settings)]
  environment['GIT_CONFIG_COUNT'] = String(all.length)
  for (const [position, [key, value]] of all.entries()) {
    environment[`GIT_CONFIG_KEY_${position}`] = key
    environment[`GIT_CONFIG_VALUE_${position}`] = value
  }
  return environment
}

/** Variables every git of ours runs with, also on the user's own repository. */
export const QUIET: Readonly<Record<string, string>> = {
  LC_ALL: 'C',
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_ATTR_NOSYSTEM: '1',
  GIT_OPTIONAL_LOCKS: '0',
  GIT_TERMINAL_PROMPT: '0',
  GIT_NO_REPLACE_OBJECTS: '1',
  GIT_PAGER: 'cat',
}

const ISOLATION: Readonly<Record<string, string>> = {
  ...QUIET,
  GIT_CONFIG_GLOBAL: '/dev/null',
  XDG_CONFIG_HOME: '/nonexistent',
}
